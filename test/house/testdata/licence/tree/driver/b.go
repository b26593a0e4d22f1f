// SPDX-License-Identifier: MIT

package driver
