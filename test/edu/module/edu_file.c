// SPDX-License-Identifier: MIT OR GPL-2.0
/* The character device /dev/edu<N>. */
#include <linux/compat.h>
#include <linux/fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "edu_priv.h"

static long edu_ioctl_info(struct edu_dev *edu, void __user *arg)
{
	struct edu_info info = {
		.index = edu->index,
		.abi_version = EDU_ABI_VERSION,
		.max_factorial = READ_ONCE(edu_max_factorial),
	};

	strscpy(info.bdf, edu->bdf, sizeof(info.bdf));
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

static long edu_ioctl_dma_copy(struct edu_dev *edu, void __user *arg)
{
	struct edu_dma_copy c;
	long ret;
	u8 *data;

	if (copy_from_user(&c, arg, sizeof(c)))
		return -EFAULT;
	if (c.reserved || c.len == 0 || c.len > EDU_DMA_MAX)
		return -EINVAL;
	/* A page fault of the caller must not hold up the other callers. */
	data = memdup_user(u64_to_user_ptr(c.src), c.len);
	if (IS_ERR(data))
		return PTR_ERR(data);
	ret = edu_copy(edu, data, c.len);
	if (!ret && copy_to_user(u64_to_user_ptr(c.dst), data, c.len))
		ret = -EFAULT;
	kfree(data);
	return ret;
}

static long edu_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct edu_dev *edu = file->private_data;
	void __user *p = (void __user *)arg;

	if (READ_ONCE(edu->gone))
		return -ENODEV;
	switch (cmd) {
	case EDU_INFO:
		return edu_ioctl_info(edu, p);
	case EDU_FACTORIAL:
		return edu_ioctl_factorial(edu, p);
	case EDU_DMA_COPY:
		return edu_ioctl_dma_copy(edu, p);
	default:
		return -ENOTTY;
	}
}

static int edu_open(struct inode *inode, struct file *file)
{
	struct edu_dev *edu = container_of(inode->i_cdev, struct edu_dev, cdev);

	/* The open file holds the cdev, and the cdev holds edu->dev. */
	if (READ_ONCE(edu->gone))
		return -ENODEV;
	file->private_data = edu;
	return nonseekable_open(inode, file);
}

const struct file_operations edu_fops = {
	.owner = THIS_MODULE,
	.open = edu_open,
	.unlocked_ioctl = edu_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};
