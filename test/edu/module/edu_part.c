// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * A device divided into equal parts, /dev/edu<N>p<M>. Each computes on the
 * device's engine, one operation after the other as ever, and moves data
 * through its own part of the device's memory only. While there are parts the
 * device itself cannot be opened, and while anything is open the layout stays.
 */
#include <linux/kobject.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "edu_priv.h"

static struct class *edu_part_class;

static struct edu_part *edu_part_of(struct device *dev)
{
	return container_of(dev, struct edu_part, dev);
}

static ssize_t profile_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", edu_part_of(dev)->profile);
}
static DEVICE_ATTR_RO(profile);

static ssize_t memory_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", edu_part_of(dev)->size);
}
static DEVICE_ATTR_RO(memory);

static struct attribute *edu_part_attrs[] = {
	&dev_attr_profile.attr,
	&dev_attr_memory.attr,
	NULL,
};
ATTRIBUTE_GROUPS(edu_part);

static void edu_part_release(struct device *dev)
{
	struct edu_part *part = edu_part_of(dev);

	put_device(&part->edu->dev);
	kfree(part);
}

/* The caller holds edu->layout. */
static int edu_part_add(struct edu_dev *edu, unsigned int number, unsigned int of)
{
	struct edu_part *part = kzalloc(sizeof(*part), GFP_KERNEL);
	int ret;

	if (!part)
		return -ENOMEM;
	device_initialize(&part->dev);
	get_device(&edu->dev);
	part->edu = edu;
	part->number = number;
	part->profile = of == 2 ? "half" : "quarter";
	part->offset = number * (EDU_MEMORY / of);
	/* The last byte of the device is nobody's, see EDU_DMA_MAX. */
	part->size = min_t(u32, EDU_MEMORY / of, EDU_DMA_MAX - part->offset);
	part->dev.class = edu_part_class;
	part->dev.parent = &edu->pdev->dev;
	part->dev.groups = edu_part_groups;
	part->dev.release = edu_part_release;
	/* Behind the numbers of the devices, EDU_MAX_PARTS for each of them. */
	part->dev.devt = edu->dev.devt - edu->index + EDU_MAX_DEVICES +
			 edu->index * EDU_MAX_PARTS + number;
	cdev_init(&part->cdev, &edu_part_fops);
	part->cdev.owner = THIS_MODULE;
	ret = dev_set_name(&part->dev, "edu%dp%u", edu->index, number);
	if (!ret)
		ret = cdev_device_add(&part->cdev, &part->dev);
	if (ret) {
		put_device(&part->dev);
		return ret;
	}
	edu->part[number] = part;
	return 0;
}

/* Nobody has one open, or the device goes. The caller holds edu->layout. */
static void edu_parts_remove(struct edu_dev *edu)
{
	unsigned int i;

	for (i = 0; i < EDU_MAX_PARTS; i++) {
		struct edu_part *part = edu->part[i];

		if (!part)
			continue;
		edu->part[i] = NULL;
		part->gone = true;
		cdev_device_del(&part->cdev, &part->dev);
		put_device(&part->dev);
	}
	edu->parts = 1;
}

void edu_parts_end(struct edu_dev *edu)
{
	mutex_lock(&edu->layout);
	edu_parts_remove(edu);
	mutex_unlock(&edu->layout);
}

/* Divides the device into 2 or 4, or makes it whole. */
int edu_divide(struct edu_dev *edu, unsigned int parts)
{
	unsigned int i;
	int ret = 0;

	if (parts != 1 && parts != 2 && parts != EDU_MAX_PARTS)
		return -EINVAL;
	mutex_lock(&edu->layout);
	if (parts == edu->parts)
		goto unlock;
	if (edu->opens > 0) {
		ret = -EBUSY;
		goto unlock;
	}
	edu_parts_remove(edu);
	for (i = 0; parts > 1 && i < parts && !ret; i++)
		ret = edu_part_add(edu, i, parts);
	if (ret)
		edu_parts_remove(edu);
	else
		edu->parts = parts;
	dev_info(&edu->pdev->dev, "in %u part(s)\n", edu->parts);
	/* Each part has told of itself; this tells that the layout is complete. */
	kobject_uevent(&edu->pdev->dev.kobj, KOBJ_CHANGE);
unlock:
	mutex_unlock(&edu->layout);
	return ret;
}

int __init edu_parts_init(void)
{
	edu_part_class = edu_class_create("accelerator_edu_partition");
	return PTR_ERR_OR_ZERO(edu_part_class);
}

void edu_parts_exit(void)
{
	class_destroy(edu_part_class);
}
