// SPDX-License-Identifier: MIT OR GPL-2.0
/* The character devices /dev/edu<N> and /dev/edu<N>p<M>. */
#include <linux/compat.h>
#include <linux/fs.h>
#include <linux/seq_file.h>
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

static long edu_ioctl_factorial(struct edu_client *client, void __user *arg)
{
	struct edu_factorial f;
	int ret;

	if (copy_from_user(&f, arg, sizeof(f)))
		return -EFAULT;
	if (f.reserved || f.n > READ_ONCE(edu_max_factorial))
		return -EINVAL;
	ret = edu_compute(client->edu, client, &f);
	if (ret)
		return ret;
	return copy_to_user(arg, &f, sizeof(f)) ? -EFAULT : 0;
}

static long edu_ioctl_dma_copy(struct edu_client *client, void __user *arg)
{
	const struct edu_part *part = client->part;
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
	ret = edu_copy(client->edu, client, part ? part->offset : 0, data, c.len);
	if (!ret && copy_to_user(u64_to_user_ptr(c.dst), data, c.len))
		ret = -EFAULT;
	kfree(data);
	return ret;
}

static long edu_ioctl_dma_read(struct edu_client *client, void __user *arg)
{
	const struct edu_part *part = client->part;
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
	ret = edu_read(client->edu, client, part ? part->offset : 0, data, c.len);
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

static long edu_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct edu_client *client = file->private_data;
	void __user *p = (void __user *)arg;

	if (READ_ONCE(client->edu->gone))
		return -ENODEV;
	switch (cmd) {
	case EDU_INFO:
		return edu_ioctl_info(client->edu, client->part, p);
	case EDU_FACTORIAL:
		return edu_ioctl_factorial(client, p);
	case EDU_DMA_COPY:
		return edu_ioctl_dma_copy(client, p);
	case EDU_DMA_READ:
		return edu_ioctl_dma_read(client, p);
	case EDU_CHECK_VERSION:
		return edu_ioctl_check_version(client->edu, p);
	default:
		return -ENOTTY;
	}
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

/* The numbers of clients are never used again while the module is loaded. */
static atomic64_t edu_clients = ATOMIC64_INIT(0);

/*
 * The open file holds the cdev, the cdev of a device edu->dev, and that of a
 * part part->dev, which holds edu->dev.
 */
static int edu_open_client(struct inode *inode, struct file *file, struct edu_dev *edu, struct edu_part *part)
{
	struct edu_client *client = kzalloc(sizeof(*client), GFP_KERNEL);
	int ret;

	if (!client)
		return -ENOMEM;
	ret = edu_enter(edu, part);
	if (ret) {
		kfree(client);
		return ret;
	}
	client->edu = edu;
	client->part = part;
	client->id = atomic64_inc_return(&edu_clients);
	file->private_data = client;
	return nonseekable_open(inode, file);	/* never fails */
}

static int edu_open(struct inode *inode, struct file *file)
{
	return edu_open_client(inode, file, container_of(inode->i_cdev, struct edu_dev, cdev), NULL);
}

static int edu_part_open(struct inode *inode, struct file *file)
{
	struct edu_part *part = container_of(inode->i_cdev, struct edu_part, cdev);

	return edu_open_client(inode, file, part->edu, part);
}

static int edu_release(struct inode *inode, struct file *file)
{
	struct edu_client *client = file->private_data;

	edu_leave(client->edu);
	kfree(client);
	return 0;
}

/*
 * What /proc/<pid>/fdinfo/<fd> says of an open file, in the words of the
 * kernel's Documentation/gpu/drm-usage-stats.rst with a prefix of our own.
 */
static void edu_show_fdinfo(struct seq_file *m, struct file *file)
{
	struct edu_client *client = file->private_data;
	u64 busy_ns[EDU_ENGINES];
	u32 held;

	edu_client_read(client, busy_ns, &held);
	seq_puts(m, "edu-driver:\tedu\n");
	seq_printf(m, "edu-client-id:\t%llu\n", client->id);
	seq_printf(m, "edu-pdev:\t%s\n", client->edu->bdf);
	seq_printf(m, "edu-total-device:\t%u\n", held);
	seq_printf(m, "edu-resident-device:\t%u\n", held);
	seq_printf(m, "edu-engine-compute:\t%llu ns\n", busy_ns[EDU_ENGINE_COMPUTE]);
	seq_printf(m, "edu-engine-dma:\t%llu ns\n", busy_ns[EDU_ENGINE_DMA]);
}

const struct file_operations edu_fops = {
	.owner = THIS_MODULE,
	.open = edu_open,
	.release = edu_release,
	.unlocked_ioctl = edu_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.show_fdinfo = edu_show_fdinfo,
};

const struct file_operations edu_part_fops = {
	.owner = THIS_MODULE,
	.open = edu_part_open,
	.release = edu_release,
	.unlocked_ioctl = edu_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.show_fdinfo = edu_show_fdinfo,
};
