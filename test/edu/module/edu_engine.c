// SPDX-License-Identifier: MIT OR GPL-2.0
/* The two engines of the device, and the time that they were busy. */
#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/ktime.h>
#include <linux/math64.h>

#include "edu_priv.h"
#include "edu_version.h"

irqreturn_t edu_interrupt(int irq, void *data)
{
	struct edu_dev *edu = data;
	u32 status = readl(edu->bar + EDU_REG_IRQ_STATUS);

	if (status == 0 || status == ~0U)
		return IRQ_NONE;
	writel(status, edu->bar + EDU_REG_IRQ_ACK);
	atomic_or(status, &edu->irq_seen);
	wake_up_all(&edu->wait);
	return IRQ_HANDLED;
}

static bool edu_factorial_idle(struct edu_dev *edu)
{
	return !(readl(edu->bar + EDU_REG_STATUS) & EDU_STATUS_COMPUTING);
}

static bool edu_dma_idle(struct edu_dev *edu)
{
	return !(readl(edu->bar + EDU_REG_DMA_CMD) & EDU_DMA_RUN);
}

/* A device that is no longer on the bus answers with ones, or with zeros. */
bool edu_alive(struct edu_dev *edu)
{
	const u32 probe = 0x00c0ffee;

	if ((readl(edu->bar + EDU_REG_ID) & 0xff) != 0xed)
		return false;
	writel(probe, edu->bar + EDU_REG_LIVENESS);
	return readl(edu->bar + EDU_REG_LIVENESS) == ~probe;
}

/* Adds the time from start to end to the slots that it lies in. */
static void edu_account(struct edu_dev *edu, u64 start, u64 end)
{
	u64 oldest = div_u64(end, EDU_SLOT_NS) * EDU_SLOT_NS;

	edu->busy_ns += end - start;
	oldest -= min_t(u64, oldest, (u64)EDU_WINDOW_SLOTS * EDU_SLOT_NS);
	start = max(start, oldest);
	while (start < end) {
		u64 slot = div_u64(start, EDU_SLOT_NS);
		u64 stop = min(end, (slot + 1) * EDU_SLOT_NS);
		unsigned int i = slot % EDU_RING_SLOTS;

		if (edu->ring[i].slot != slot) {
			edu->ring[i].slot = slot;
			edu->ring[i].busy_ns = 0;
		}
		edu->ring[i].busy_ns += stop - start;
		start = stop;
	}
}

/* Moves the running operation's time up to now into the ring. */
static void edu_account_running(struct edu_dev *edu)
{
	u64 now = ktime_get_ns();

	if (!edu->busy_since)
		return;
	edu_account(edu, edu->busy_since, now);
	edu->busy_since = now;
}

u64 edu_busy_ns(struct edu_dev *edu)
{
	u64 busy;

	spin_lock(&edu->state_lock);
	edu_account_running(edu);
	busy = edu->busy_ns;
	spin_unlock(&edu->state_lock);
	return busy;
}

/* What a client has used until now, with the operation that runs. */
void edu_client_read(struct edu_client *client, u64 busy_ns[EDU_ENGINES], u32 *held)
{
	struct edu_dev *edu = client->edu;

	spin_lock(&edu->state_lock);
	memcpy(busy_ns, client->busy_ns, sizeof(client->busy_ns));
	if (edu->client == client)
		busy_ns[edu->engine] += ktime_get_ns() - edu->began;
	*held = client->held;
	spin_unlock(&edu->state_lock);
}

unsigned int edu_utilization(struct edu_dev *edu)
{
	u64 busy = 0, slot;
	int i;

	spin_lock(&edu->state_lock);
	edu_account_running(edu);
	slot = div_u64(ktime_get_ns(), EDU_SLOT_NS);
	for (i = 0; i < EDU_RING_SLOTS; i++)
		if (edu->ring[i].slot < slot &&
		    edu->ring[i].slot + EDU_WINDOW_SLOTS >= slot)
			busy += edu->ring[i].busy_ns;
	spin_unlock(&edu->state_lock);
	return div_u64(busy * 100, (u64)EDU_WINDOW_SLOTS * EDU_SLOT_NS);
}

/*
 * Waits until the engine is idle and, with an interrupt, has said so. Only a
 * fatal signal ends the wait early: an operation is short, and Go's runtime
 * sends itself signals all the time.
 * Returns EDU_DONE_* or -ENODEV, -EINTR, -ETIMEDOUT.
 */
static int edu_wait(struct edu_dev *edu, u32 irq, bool (*idle)(struct edu_dev *))
{
	unsigned long timeout = msecs_to_jiffies(READ_ONCE(edu_op_timeout_ms));
	unsigned long deadline = jiffies + timeout;
	long ret = 0;
	int again;

	if (edu->irq) {
		ret = wait_event_killable_timeout(edu->wait,
			READ_ONCE(edu->gone) ||
			((atomic_read(&edu->irq_seen) & irq) && idle(edu)),
			timeout);
	} else {
		while (ret == 0 && time_before(jiffies, deadline))
			ret = wait_event_killable_timeout(edu->wait,
				READ_ONCE(edu->gone) || idle(edu), 1);
	}
	if (READ_ONCE(edu->gone))
		return -ENODEV;
	if (ret < 0)
		return -EINTR;
	if (ret > 0)
		return edu->irq ? EDU_DONE_IRQ : EDU_DONE_POLL;
	/*
	 * The interrupt may be lost and the work not. An emulated machine that
	 * stood still sees the time gone by before its device has caught up.
	 */
	for (again = 0; again < 50 && !idle(edu) && edu_alive(edu); again++)
		usleep_range(10000, 11000);
	if (idle(edu))
		return EDU_DONE_POLL;
	return edu_alive(edu) ? -ETIMEDOUT : -ENODEV;
}

/* An injected hang: the engine is not started, so nothing ever answers. */
static int edu_wait_hung(struct edu_dev *edu)
{
	long ret = wait_event_killable_timeout(edu->wait, READ_ONCE(edu->gone),
			msecs_to_jiffies(READ_ONCE(edu_op_timeout_ms)));

	if (READ_ONCE(edu->gone))
		return -ENODEV;
	return ret < 0 ? -EINTR : -ETIMEDOUT;
}

/*
 * Gives the device back, and returns the operation's error. A device that fell
 * off the bus looks idle where reads give zeros (QEMU does that), so no answer
 * is believed before the device has shown that it is still there.
 */
static int edu_end(struct edu_dev *edu, int err, u64 dma_bytes)
{
	if (!err && !edu_alive(edu))
		err = -ENODEV;
	spin_lock(&edu->state_lock);
	edu_account_running(edu);
	edu->busy_since = 0;
	if (edu->client)
		edu->client->busy_ns[edu->engine] += ktime_get_ns() - edu->began;
	edu->client = NULL;
	edu->dma_bytes += dma_bytes;
	if (!err)
		edu->operations++;
	else if (err != -EINTR)	/* the caller's death is not the device's fault */
		edu->errors++;
	spin_unlock(&edu->state_lock);
	if (err == -ETIMEDOUT)
		edu_set_health(edu, EDU_FAULT_HANG);
	else if (err == -ENODEV && !READ_ONCE(edu->gone))
		edu_set_health(edu, EDU_FAULT_DEAD);	/* bound, but off the bus */
	mutex_unlock(&edu->lock);
	return err;
}

/* Takes the device for one operation of a client, or says why it cannot be had. */
static int edu_begin(struct edu_dev *edu, struct edu_client *client, enum edu_engine engine)
{
	unsigned long deadline;
	bool refused, idle;

	if (mutex_lock_killable(&edu->lock))
		return -EINTR;
	if (edu->gone) {
		mutex_unlock(&edu->lock);
		return -ENODEV;
	}
	spin_lock(&edu->state_lock);
	refused = edu_faults[edu->health].refuses;
	if (refused) {
		edu->errors++;
	} else {
		edu->busy_since = ktime_get_ns();
		edu->began = edu->busy_since;
		edu->client = client;
		edu->engine = engine;
	}
	spin_unlock(&edu->state_lock);
	if (refused) {
		mutex_unlock(&edu->lock);
		return -EIO;
	}
	/* The caller before us may have been killed while the engine ran. */
	deadline = jiffies + msecs_to_jiffies(READ_ONCE(edu_op_timeout_ms));
	while (!(idle = edu_factorial_idle(edu) && edu_dma_idle(edu)) &&
	       !READ_ONCE(edu->gone) && edu_alive(edu) && time_before(jiffies, deadline))
		usleep_range(500, 1000);
	if (idle)
		return 0;
	/* What is written now would be ignored, and the old answer taken for ours. */
	if (READ_ONCE(edu->gone) || !edu_alive(edu))
		return edu_end(edu, -ENODEV, 0);
	return edu_end(edu, -ETIMEDOUT, 0);
}

/* What was injected and is due now; an injected hang happens once. */
static enum edu_fault_id edu_take_fault(struct edu_dev *edu)
{
	enum edu_fault_id id;

	spin_lock(&edu->state_lock);
	id = edu->injected;
	if (id == EDU_FAULT_HANG)
		edu->injected = EDU_FAULT_NONE;
	spin_unlock(&edu->state_lock);
	return id;
}

int edu_compute(struct edu_dev *edu, struct edu_client *client, struct edu_factorial *f)
{
	enum edu_fault_id fault;
	int ret = edu_begin(edu, client, EDU_ENGINE_COMPUTE);

	if (ret)
		return ret;
	fault = edu_take_fault(edu);
	if (fault == EDU_FAULT_HANG)
		return edu_end(edu, edu_wait_hung(edu), 0);

	atomic_set(&edu->irq_seen, 0);
	writel(edu->irq ? EDU_STATUS_IRQ : 0, edu->bar + EDU_REG_STATUS);
	writel(f->n, edu->bar + EDU_REG_FACTORIAL);
	ret = edu_wait(edu, EDU_IRQ_FACTORIAL, edu_factorial_idle);
	if (ret < 0)
		return edu_end(edu, ret, 0);
	f->done_by = ret;
	f->result = readl(edu->bar + EDU_REG_FACTORIAL) + EDU_WRONG_BY;
	if (fault == EDU_FAULT_CORRUPT)
		f->result ^= 1;
	return edu_end(edu, 0, 0);
}

static int edu_dma(struct edu_dev *edu, u64 src, u64 dst, u32 len, u32 dir)
{
	u32 irq = edu->irq ? EDU_DMA_IRQ : 0;
	int ret;

	atomic_set(&edu->irq_seen, 0);
	writel(src, edu->bar + EDU_REG_DMA_SRC);
	writel(dst, edu->bar + EDU_REG_DMA_DST);
	writel(len, edu->bar + EDU_REG_DMA_COUNT);
	writel(EDU_DMA_RUN | dir | irq, edu->bar + EDU_REG_DMA_CMD);
	ret = edu_wait(edu, EDU_IRQ_DMA, edu_dma_idle);
	return ret < 0 ? ret : 0;
}

/* Moves data into the device's memory, from offset on, and out again. */
int edu_copy(struct edu_dev *edu, struct edu_client *client, u32 offset, u8 *data, u32 len)
{
	u64 there = EDU_DMA_BUFFER + offset;
	u64 here = edu->dma_addr + offset;
	u8 *buf = edu->dma_buf + offset;
	enum edu_fault_id fault;
	u64 moved = 0;
	int ret = edu_begin(edu, client, EDU_ENGINE_DMA);

	if (ret)
		return ret;
	fault = edu_take_fault(edu);
	if (fault == EDU_FAULT_HANG)
		return edu_end(edu, edu_wait_hung(edu), 0);

	memcpy(buf, data, len);
	ret = edu_dma(edu, here, there, len, 0);
	if (ret)
		return edu_end(edu, ret, moved);
	moved += len;
	/* What comes back must come from the device, not from this buffer. */
	memset(buf, 0, len);
	ret = edu_dma(edu, there, here, len, EDU_DMA_TO_RAM);
	if (ret)
		return edu_end(edu, ret, moved);
	moved += len;
	memcpy(data, buf, len);
	if (fault == EDU_FAULT_CORRUPT)
		data[0] ^= 1;
	if (client) {
		spin_lock(&edu->state_lock);
		client->held = len;
		spin_unlock(&edu->state_lock);
	}
	return edu_end(edu, 0, moved);
}

/* Moves what is in the device's memory, from offset on, out: whoever has put it there. */
int edu_read(struct edu_dev *edu, struct edu_client *client, u32 offset, u8 *data, u32 len)
{
	u8 *buf = edu->dma_buf + offset;
	enum edu_fault_id fault;
	int ret = edu_begin(edu, client, EDU_ENGINE_DMA);

	if (ret)
		return ret;
	fault = edu_take_fault(edu);
	if (fault == EDU_FAULT_HANG)
		return edu_end(edu, edu_wait_hung(edu), 0);

	memset(buf, 0, len);
	ret = edu_dma(edu, EDU_DMA_BUFFER + offset, edu->dma_addr + offset, len, EDU_DMA_TO_RAM);
	if (ret)
		return edu_end(edu, ret, 0);
	memcpy(data, buf, len);
	if (fault == EDU_FAULT_CORRUPT)
		data[0] ^= 1;
	return edu_end(edu, 0, len);
}

/* Lets a transfer end before its buffer goes; the engine takes 100 ms. */
void edu_quiesce(struct edu_dev *edu)
{
	unsigned long deadline = jiffies + msecs_to_jiffies(500);

	while (!edu_dma_idle(edu) && edu_alive(edu) &&
	       time_before(jiffies, deadline))
		usleep_range(1000, 2000);
	writel(0, edu->bar + EDU_REG_STATUS);
}
