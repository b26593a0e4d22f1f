/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* What libedu gives to programs. */
#ifndef LIBEDU_H
#define LIBEDU_H

/* The version of the library, such as "1.0.0". */
const char *edu_version(void);

/*
 * Opens a device, such as "/dev/edu0", and returns a descriptor for close(2).
 * It returns -1 and sets errno if it cannot; EPROTO means that the module has
 * another version than the library.
 */
int edu_open(const char *path);

/* Stores the device's serial number, 32 bytes with the NUL; returns 0 or -1. */
int edu_serial(int fd, char serial[32]);

/* Stores n! modulo 2^32 as the device computes it; returns 0 or -1. */
int edu_factorial(int fd, unsigned int n, unsigned int *result);

#endif
