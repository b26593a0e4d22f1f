// SPDX-License-Identifier: MIT OR GPL-2.0
/* The attributes of the PCI device, its health, and how to break it. */
#include <linux/kobject.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "edu_priv.h"

/* The codes are this driver's own; README.md lists them. */
const struct edu_fault edu_faults[EDU_FAULTS] = {
	[EDU_FAULT_NONE]      = { "none", "ok", "", 0, false },
	[EDU_FAULT_FAIL]      = { "fail", "failed", "injected", 7, true },
	[EDU_FAULT_HANG]      = { "hang", "hung", "operation timed out", 8, true },
	[EDU_FAULT_CORRECTED] = { "corrected", "ok", "corrected memory error", 3, false },
	[EDU_FAULT_CORRUPT]   = { "corrupt", "ok", "", 0, false },
	[EDU_FAULT_OVERHEAT]  = { "overheat", "overheated", "too hot", 11, false },
	[EDU_FAULT_DEAD]      = { "dead", "dead", "does not answer", 79, true },
};

/* Millidegrees Celsius. A model, not a measurement: see temperature_show. */
#define EDU_TEMP_IDLE		35000
#define EDU_TEMP_PER_PERCENT	400
#define EDU_TEMP_OVERHEATED	105000

/* A line that a reader of the kernel log can rely on. */
static void edu_log_fault(struct edu_dev *edu, enum edu_fault_id id)
{
	dev_err(&edu->pdev->dev, "EDU-ERR %d: %s\n", edu_faults[id].code,
		edu_faults[id].message);
}

/*
 * Tells everybody who may listen: the log, poll() on the attribute, udev.
 * The caller knows that the PCI device is still bound: it holds edu->lock and
 * saw !gone, or runs in an attribute, which the driver core waits for.
 */
void edu_set_health(struct edu_dev *edu, enum edu_fault_id id)
{
	struct kobject *kobj = &edu->pdev->dev.kobj;
	char health[32], code[24];
	char *env[] = { health, code, NULL };
	enum edu_fault_id old;

	spin_lock(&edu->state_lock);
	old = edu->health;
	edu->health = id;
	spin_unlock(&edu->state_lock);
	if (old == id)
		return;

	if (edu_faults[id].code)
		edu_log_fault(edu, id);
	else
		dev_info(&edu->pdev->dev, "healthy again\n");
	snprintf(health, sizeof(health), "EDU_HEALTH=%s", edu_faults[id].health);
	snprintf(code, sizeof(code), "EDU_ERR=%d", edu_faults[id].code);
	sysfs_notify(kobj, NULL, "health");
	kobject_uevent_env(kobj, KOBJ_CHANGE, env);
}

static struct edu_dev *edu_of(struct device *dev)
{
	return pci_get_drvdata(to_pci_dev(dev));
}

static ssize_t serial_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", edu_of(dev)->serial);
}
static DEVICE_ATTR_RO(serial);

static ssize_t health_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", edu_faults[READ_ONCE(edu_of(dev)->health)].health);
}
static DEVICE_ATTR_RO(health);

static ssize_t utilization_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", edu_utilization(edu_of(dev)));
}
static DEVICE_ATTR_RO(utilization);

/*
 * The device has no sensor. The number follows utilization so that readers
 * have something that moves, and it is out of range while overheat is injected.
 */
static ssize_t temperature_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct edu_dev *edu = edu_of(dev);
	unsigned int temp = EDU_TEMP_OVERHEATED;

	if (READ_ONCE(edu->health) != EDU_FAULT_OVERHEAT)
		temp = EDU_TEMP_IDLE + EDU_TEMP_PER_PERCENT * edu_utilization(edu);
	return sysfs_emit(buf, "%u\n", temp);
}
static DEVICE_ATTR_RO(temperature);

static ssize_t busy_ns_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%llu\n", edu_busy_ns(edu_of(dev)));
}
static DEVICE_ATTR_RO(busy_ns);

#define EDU_COUNTER(name)							\
static ssize_t name##_show(struct device *dev, struct device_attribute *attr,	\
			   char *buf)						\
{										\
	return sysfs_emit(buf, "%llu\n", READ_ONCE(edu_of(dev)->name));		\
}										\
static DEVICE_ATTR_RO(name)

EDU_COUNTER(operations);
EDU_COUNTER(errors);
EDU_COUNTER(corrected_errors);
EDU_COUNTER(dma_bytes);

static ssize_t inject_error_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", edu_faults[READ_ONCE(edu_of(dev)->injected)].name);
}

/*
 * A proof of work without a program: write n, read n! as the device computed
 * it. One result is kept per device; the last writer's is read.
 */
static ssize_t factorial_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(edu_of(dev)->factorial));
}

static ssize_t factorial_store(struct device *dev, struct device_attribute *attr,
			       const char *buf, size_t count)
{
	struct edu_dev *edu = edu_of(dev);
	struct edu_factorial f = {};
	int ret;

	ret = kstrtou32(buf, 0, &f.n);
	if (ret)
		return ret;
	if (f.n > READ_ONCE(edu_max_factorial))
		return -EINVAL;
	WRITE_ONCE(edu->factorial, 0);	/* a failure must not show an older result */
	ret = edu_compute(edu, NULL, &f);
	if (ret)
		return ret;
	WRITE_ONCE(edu->factorial, f.result);
	return count;
}
static DEVICE_ATTR(factorial, 0600, factorial_show, factorial_store);

static void edu_inject(struct edu_dev *edu, enum edu_fault_id id)
{
	spin_lock(&edu->state_lock);
	if (id == EDU_FAULT_CORRECTED)
		edu->corrected_errors++;
	else
		edu->injected = id;
	spin_unlock(&edu->state_lock);

	switch (id) {
	case EDU_FAULT_CORRECTED:	/* an event, not a state */
		edu_log_fault(edu, id);
		break;
	case EDU_FAULT_HANG:		/* shows with the next operation */
	case EDU_FAULT_CORRUPT:		/* never shows, only in the results */
		break;
	default:
		edu_set_health(edu, id);
	}
}

static ssize_t inject_error_store(struct device *dev, struct device_attribute *attr,
				  const char *buf, size_t count)
{
	int id;

	for (id = 0; id < EDU_FAULTS; id++) {
		if (sysfs_streq(buf, edu_faults[id].name)) {
			edu_inject(edu_of(dev), id);
			return count;
		}
	}
	return -EINVAL;
}
static DEVICE_ATTR(inject_error, 0600, inject_error_show, inject_error_store);

static ssize_t partitions_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(edu_of(dev)->parts));
}

static ssize_t partitions_store(struct device *dev, struct device_attribute *attr,
				const char *buf, size_t count)
{
	unsigned int parts;
	int ret = kstrtouint(buf, 0, &parts);

	if (!ret)
		ret = edu_divide(edu_of(dev), parts);
	return ret ? ret : count;
}
static DEVICE_ATTR_RW(partitions);

/* Clears the device's memory; the write returns when that is done. */
static ssize_t scrub_store(struct device *dev, struct device_attribute *attr,
			   const char *buf, size_t count)
{
	u8 *zeros = kzalloc(EDU_DMA_MAX, GFP_KERNEL);
	int ret;

	if (!zeros)
		return -ENOMEM;
	ret = edu_copy(edu_of(dev), NULL, 0, zeros, EDU_DMA_MAX);
	kfree(zeros);
	return ret ? ret : count;
}
static DEVICE_ATTR_WO(scrub);

/* Something that can be set, and that a new binding of the driver forgets. */
static ssize_t limit_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(edu_of(dev)->limit));
}

static ssize_t limit_store(struct device *dev, struct device_attribute *attr,
			   const char *buf, size_t count)
{
	unsigned int limit;
	int ret = kstrtouint(buf, 0, &limit);

	if (ret || limit < 1 || limit > EDU_LIMIT)
		return ret ? ret : -EINVAL;
	WRITE_ONCE(edu_of(dev)->limit, limit);
	return count;
}
static DEVICE_ATTR_RW(limit);

static struct attribute *edu_attrs[] = {
	&dev_attr_serial.attr,
	&dev_attr_health.attr,
	&dev_attr_utilization.attr,
	&dev_attr_temperature.attr,
	&dev_attr_busy_ns.attr,
	&dev_attr_operations.attr,
	&dev_attr_errors.attr,
	&dev_attr_corrected_errors.attr,
	&dev_attr_dma_bytes.attr,
	&dev_attr_factorial.attr,
	&dev_attr_inject_error.attr,
	&dev_attr_partitions.attr,
	&dev_attr_scrub.attr,
	&dev_attr_limit.attr,
	NULL,
};
static const struct attribute_group edu_group = { .attrs = edu_attrs };
const struct attribute_group *edu_groups[] = { &edu_group, NULL };
