// SPDX-License-Identifier: MIT OR GPL-2.0
/* The character devices /dev/edu<N> and /dev/edu<N>p<M>. */
#include <linux/compat.h>
#include <linux/fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "edu_priv.h"
#include "edu_version.h"

/* What an operation may use of a device: part is NULL for all of it. */
static u32 edu_dma_size(const struct edu_part *part)
{
	return part ? part->size : EDU_DMA_MAX;
}

static long edu_ioctl_info(struct edu_dev *edu, const struct edu_part *part, void __user *arg)
{
	struct edu_info info = {
		.index = edu->index,
		.abi_version = EDU_ABI_VERSION,
		.max_factorial = READ_ONCE(edu_max_factorial),
		.dma_max = edu_dma_size(part),
	};

	strscpy(info.bdf, edu->bdf, sizeof(info.bdf));
	if (part)
		snprintf(info.serial, sizeof(info.serial), "%.28s-p%u", edu->serial, part->number % 10);
	else
		strscpy(info.serial, edu->serial, sizeof(info.serial));
	return copy_to_user(arg, &info, sizeof(info)) ? -EFAULT : 0;
}

static long edu_ioctl_factorial(struct edu_dev *edu, void __user *arg)
{
	struct edu_factorial f;
	int ret;

	if (copy_from_user(&f, arg, sizeof(f)))
		return -EFAULT;
	if (f.reserved || f.n > READ_ONCE(edu_max_factorial))
		return -EINVAL;
	ret = edu_compute(edu, &f);
	if (ret)
		return ret;
	return copy_to_user(arg, &f, sizeof(f)) ? -EFAULT : 0;
}

static long edu_ioctl_dma_copy(struct edu_dev *edu, const struct edu_part *part, void __user *arg)
{
	struct edu_dma_copy c;
	long ret;
	u8 *data;

	if (copy_from_user(&c, arg, sizeof(c)))
		return -EFAULT;
	if (c.reserved || c.len == 0 || c.len > edu_dma_size(part))
		return -EINVAL;
	/* A page fault of the caller must not hold up the other callers. */
	data = memdup_user(u64_to_user_ptr(c.src), c.len);
	if (IS_ERR(data))
		return PTR_ERR(data);
	ret = edu_copy(edu, part ? part->offset : 0, data, c.len);
	if (!ret && copy_to_user(u64_to_user_ptr(c.dst), data, c.len))
		ret = -EFAULT;
	kfree(data);
	return ret;
}

static long edu_ioctl_dma_read(struct edu_dev *edu, const struct edu_part *part, void __user *arg)
{
	struct edu_dma_copy c;
	long ret;
	u8 *data;

	if (copy_from_user(&c, arg, sizeof(c)))
		return -EFAULT;
	if (c.reserved || c.src || c.len == 0 || c.len > edu_dma_size(part))
		return -EINVAL;
	data = kzalloc(c.len, GFP_KERNEL);
	if (!data)
		return -ENOMEM;
	ret = edu_read(edu, part ? part->offset : 0, data, c.len);
	if (!ret && copy_to_user(u64_to_user_ptr(c.dst), data, c.len))
		ret = -EFAULT;
	kfree(data);
	return ret;
}

/* libedu asks this before anything else: its calls mean what its own version says. */
static long edu_ioctl_check_version(struct edu_dev *edu, void __user *arg)
{
	struct edu_version v;

	if (copy_from_user(&v, arg, sizeof(v)))
		return -EFAULT;
	v.version[sizeof(v.version) - 1] = '\0';
	if (!strcmp(v.version, EDU_VERSION))
		return 0;
	pr_warn_ratelimited("edu: %s: API mismatch: the library has version %.31s, this module has %s\n",
			    edu->bdf, v.version, EDU_VERSION);
	return -EPROTO;
}

static long edu_do_ioctl(struct edu_dev *edu, const struct edu_part *part,
			 unsigned int cmd, unsigned long arg)
{
	void __user *p = (void __user *)arg;

	if (READ_ONCE(edu->gone))
		return -ENODEV;
	switch (cmd) {
	case EDU_INFO:
		return edu_ioctl_info(edu, part, p);
	case EDU_FACTORIAL:
		return edu_ioctl_factorial(edu, p);
	case EDU_DMA_COPY:
		return edu_ioctl_dma_copy(edu, part, p);
	case EDU_DMA_READ:
		return edu_ioctl_dma_read(edu, part, p);
	case EDU_CHECK_VERSION:
		return edu_ioctl_check_version(edu, p);
	default:
		return -ENOTTY;
	}
}

static long edu_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return edu_do_ioctl(file->private_data, NULL, cmd, arg);
}

static long edu_part_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct edu_part *part = file->private_data;

	return edu_do_ioctl(part->edu, part, cmd, arg);
}

/* Counts an open file, so that the layout stays under it. */
static int edu_enter(struct edu_dev *edu, const struct edu_part *part)
{
	int ret = 0;

	mutex_lock(&edu->layout);
	if (READ_ONCE(edu->gone) || (part && part->gone))
		ret = -ENODEV;
	else if (!part && edu->parts > 1)
		ret = -EBUSY;
	else
		edu->opens++;
	mutex_unlock(&edu->layout);
	return ret;
}

static void edu_leave(struct edu_dev *edu)
{
	mutex_lock(&edu->layout);
	edu->opens--;
	mutex_unlock(&edu->layout);
}

static int edu_open(struct inode *inode, struct file *file)
{
	struct edu_dev *edu = container_of(inode->i_cdev, struct edu_dev, cdev);

	/* The open file holds the cdev, and the cdev holds edu->dev. */
	file->private_data = edu;
	return edu_enter(edu, NULL) ?: nonseekable_open(inode, file);
}

static int edu_release(struct inode *inode, struct file *file)
{
	edu_leave(file->private_data);
	return 0;
}

static int edu_part_open(struct inode *inode, struct file *file)
{
	struct edu_part *part = container_of(inode->i_cdev, struct edu_part, cdev);

	/* The open file holds the cdev, the cdev part->dev, and that edu->dev. */
	file->private_data = part;
	return edu_enter(part->edu, part) ?: nonseekable_open(inode, file);
}

static int edu_part_close(struct inode *inode, struct file *file)
{
	struct edu_part *part = file->private_data;

	edu_leave(part->edu);
	return 0;
}

const struct file_operations edu_fops = {
	.owner = THIS_MODULE,
	.open = edu_open,
	.release = edu_release,
	.unlocked_ioctl = edu_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

const struct file_operations edu_part_fops = {
	.owner = THIS_MODULE,
	.open = edu_part_open,
	.release = edu_part_close,
	.unlocked_ioctl = edu_part_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};
