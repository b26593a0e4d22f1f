// Copyright 2020 Somebody
// Licensed under the Something Licence.

// Package driver is about a text that says "licensed under the".
package driver

// SPDX-License-Identifier is a tag.
const tag = ""
