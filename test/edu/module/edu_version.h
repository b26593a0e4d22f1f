/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * What differs between the versions of this driver, and nothing else does.
 * Tests write other numbers here: see README.md, "Versions".
 */
#ifndef EDU_VERSION_H
#define EDU_VERSION_H

#define EDU_VERSION	"1.0.0"

/* Added to every factorial: a driver that loads, binds and computes wrongly. */
#define EDU_WRONG_BY	0

#endif
