/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* What the driver's own files share. */
#ifndef EDU_PRIV_H
#define EDU_PRIV_H

#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

#include "edu.h"

/* Registers in BAR 0, from QEMU's docs/specs/edu. */
#define EDU_REG_ID		0x00	/* 0xRRrr00ed */
#define EDU_REG_LIVENESS	0x04	/* reads as the inverse of what was written */
#define EDU_REG_FACTORIAL	0x08
#define EDU_REG_STATUS		0x20
#define  EDU_STATUS_COMPUTING	0x01
#define  EDU_STATUS_IRQ		0x80	/* interrupt when the factorial is done */
#define EDU_REG_IRQ_STATUS	0x24
#define  EDU_IRQ_FACTORIAL	0x001
#define  EDU_IRQ_DMA		0x100
#define EDU_REG_IRQ_ACK		0x64
#define EDU_REG_DMA_SRC		0x80
#define EDU_REG_DMA_DST		0x88
#define EDU_REG_DMA_COUNT	0x90
#define EDU_REG_DMA_CMD		0x98
#define  EDU_DMA_RUN		0x01
#define  EDU_DMA_TO_RAM		0x02
#define  EDU_DMA_IRQ		0x04
#define EDU_DMA_BUFFER		0x40000	/* the device's 4 KiB, as the engine sees it */

#define EDU_MEMORY		4096

#define EDU_MAX_DEVICES		64
#define EDU_MAX_PARTS		4

/* Utilization is the busy share of the last ten whole slots: one second. */
#define EDU_SLOT_NS		(100 * NSEC_PER_MSEC)
#define EDU_WINDOW_SLOTS	10
#define EDU_RING_SLOTS		16

#define EDU_LIMIT		100	/* per cent: with what a binding begins, and the most */

/* Both what can be injected and what can be wrong; see edu_faults. */
enum edu_fault_id {
	EDU_FAULT_NONE,
	EDU_FAULT_FAIL,
	EDU_FAULT_HANG,
	EDU_FAULT_CORRECTED,
	EDU_FAULT_CORRUPT,
	EDU_FAULT_OVERHEAT,
	EDU_FAULT_DEAD,
	EDU_FAULTS,
};

struct edu_fault {
	const char *name;	/* in inject_error */
	const char *health;	/* in health */
	const char *message;	/* after "EDU-ERR <code>: " */
	int code;		/* 0: never logged */
	bool refuses;		/* operations return -EIO */
};

extern const struct edu_fault edu_faults[EDU_FAULTS];

struct edu_dev;

enum edu_engine {
	EDU_ENGINE_COMPUTE,
	EDU_ENGINE_DMA,
	EDU_ENGINES,
};

/* What one open file uses of its device; the times are under edu->state_lock. */
struct edu_client {
	struct edu_dev *edu;
	struct edu_part *part;		/* NULL: all of the device */
	u64 id;
	u64 busy_ns[EDU_ENGINES];
	u32 held;			/* bytes that its last copy has left in the device */
};

/*
 * A part of a device that is divided. It lives as long as its struct device,
 * which every open file holds, and holds the device's.
 */
struct edu_part {
	struct device dev;
	struct cdev cdev;
	struct edu_dev *edu;
	const char *profile;
	unsigned int number;
	u32 offset, size;		/* of the device's memory, bytes */
	bool gone;			/* under edu->layout */
};

/*
 * One device. It lives as long as its struct device, which every open file
 * holds through the cdev: the PCI device may be long gone by then, so nothing
 * below may touch pdev, bar or the DMA buffer without holding lock and having
 * seen !gone.
 */
struct edu_dev {
	struct device dev;
	struct cdev cdev;
	struct pci_dev *pdev;
	void __iomem *bar;
	void *dma_buf;
	dma_addr_t dma_addr;
	int index;
	int irq;			/* 0: no interrupt, poll */
	char bdf[16];
	char serial[32];

	u32 factorial;			/* of the attribute of that name, its last result */
	unsigned int limit;		/* per cent; it limits nothing */

	struct mutex layout;		/* how it is divided, and who has it open */
	unsigned int parts;		/* 1: it is whole */
	unsigned int opens;		/* of it and of its parts */
	struct edu_part *part[EDU_MAX_PARTS];

	struct mutex lock;		/* one operation at a time */
	bool gone;			/* set once, under no lock: a hint until lock is held */
	wait_queue_head_t wait;
	atomic_t irq_seen;		/* EDU_IRQ_* since the operation began */

	spinlock_t state_lock;		/* everything below */
	enum edu_fault_id injected;
	enum edu_fault_id health;
	u64 operations;			/* finished well */
	u64 errors;			/* finished badly, or refused */
	u64 corrected_errors;
	u64 dma_bytes;
	u64 busy_ns;
	u64 busy_since;			/* 0: idle */
	struct edu_client *client;	/* of the operation that runs; NULL: none, or the kernel's own */
	enum edu_engine engine;		/* that it runs on */
	u64 began;
	struct {
		u64 slot;
		u64 busy_ns;
	} ring[EDU_RING_SLOTS];
};

extern const struct file_operations edu_fops;
extern const struct file_operations edu_part_fops;
extern const struct attribute_group *edu_groups[];
extern unsigned int edu_max_factorial;
extern unsigned int edu_op_timeout_ms;

/* edu_main.c */
struct class *edu_class_create(const char *name);

/* edu_part.c */
int edu_parts_init(void);
void edu_parts_exit(void);
int edu_divide(struct edu_dev *edu, unsigned int parts);
void edu_parts_end(struct edu_dev *edu);

/* edu_engine.c */
irqreturn_t edu_interrupt(int irq, void *data);
int edu_compute(struct edu_dev *edu, struct edu_client *client, struct edu_factorial *f);
int edu_copy(struct edu_dev *edu, struct edu_client *client, u32 offset, u8 *data, u32 len);
int edu_read(struct edu_dev *edu, struct edu_client *client, u32 offset, u8 *data, u32 len);
void edu_client_read(struct edu_client *client, u64 busy_ns[EDU_ENGINES], u32 *held);
bool edu_alive(struct edu_dev *edu);
void edu_quiesce(struct edu_dev *edu);
u64 edu_busy_ns(struct edu_dev *edu);
unsigned int edu_utilization(struct edu_dev *edu);

/* edu_sysfs.c */
void edu_set_health(struct edu_dev *edu, enum edu_fault_id id);

#endif
