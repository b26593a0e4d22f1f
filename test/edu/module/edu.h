/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * What user space says to /dev/edu<N>, and to /dev/edu<N>p<M> where the device
 * is divided. Every struct has the same layout for
 * 32- and 64-bit callers; reserved fields must be zero.
 */
#ifndef EDU_H
#define EDU_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Raised when a struct below changes its meaning. */
#define EDU_ABI_VERSION		1

/*
 * The most that one copy moves, in bytes: one less than the device's memory,
 * because QEMU 7.2 ends the whole machine ("DMA range out of bounds") when a
 * transfer touches the last byte.
 */
#define EDU_DMA_MAX		4095

/* How the driver learned that the engine was done. */
#define EDU_DONE_IRQ		1
#define EDU_DONE_POLL		2

struct edu_info {
	char bdf[16];		/* "0000:01:00.0", NUL-terminated */
	char serial[32];	/* NUL-terminated */
	__u32 index;		/* the N of /dev/edu<N> */
	__u32 abi_version;	/* EDU_ABI_VERSION */
	__u32 max_factorial;	/* the largest n that EDU_FACTORIAL takes */
	__u32 dma_max;		/* the most that EDU_DMA_COPY takes; 0: EDU_DMA_MAX */
};

struct edu_factorial {
	__u32 n;		/* in */
	__u32 result;		/* out: n! modulo 2^32 */
	__u32 done_by;		/* out: EDU_DONE_* */
	__u32 reserved;		/* in: 0 */
};

struct edu_dma_copy {
	__u64 src;		/* in: user address to read from */
	__u64 dst;		/* in: user address to write to */
	__u32 len;		/* in: 1 to dma_max bytes */
	__u32 reserved;		/* in: 0 */
};

struct edu_version {
	char version[32];	/* in: the user space's, NUL-terminated */
};

#define EDU_INFO	_IOR(0xed, 0, struct edu_info)
#define EDU_FACTORIAL	_IOWR(0xed, 1, struct edu_factorial)
#define EDU_DMA_COPY	_IOW(0xed, 2, struct edu_dma_copy)
/* Fails with EPROTO, and a line in the kernel log, unless both versions are equal. */
#define EDU_CHECK_VERSION	_IOW(0xed, 3, struct edu_version)
/* Reads the device's memory as its last user has left it; src must be zero. */
#define EDU_DMA_READ	_IOW(0xed, 4, struct edu_dma_copy)

#endif
