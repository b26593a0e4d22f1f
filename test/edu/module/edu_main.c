// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * A driver for QEMU's edu device (PCI 1234:11e8), which makes it a stand-in
 * for an accelerator: it computes, moves data, fails on demand and vanishes.
 * This file: the module, its parameters, and the life of a device.
 */
#include <linux/delay.h>
#include <linux/idr.h>
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "edu_priv.h"
#include "edu_version.h"

#define EDU_MINORS	(EDU_MAX_DEVICES * (1 + EDU_MAX_PARTS))
#define EDU_OOPS_CONFIRM 0xed

static bool fail_probe;
module_param(fail_probe, bool, 0644);
MODULE_PARM_DESC(fail_probe, "every probe returns -EIO");

static int fail_init;
module_param(fail_init, int, 0444);
MODULE_PARM_DESC(fail_init, "errno that loading the module returns (0: none)");

static unsigned int slow_init_ms;
module_param(slow_init_ms, uint, 0444);
MODULE_PARM_DESC(slow_init_ms, "milliseconds that loading the module takes");

static bool oops_init;
module_param(oops_init, bool, 0444);
MODULE_PARM_DESC(oops_init, "oops while loading; only with oops_confirm=0xed");

static unsigned int oops_confirm;
module_param(oops_confirm, uint, 0444);
MODULE_PARM_DESC(oops_confirm, "0xed: oops_init is meant");

static bool no_msi;
module_param(no_msi, bool, 0444);
MODULE_PARM_DESC(no_msi, "use no interrupt, poll the device");

static char *serial_prefix = "EDU";
module_param(serial_prefix, charp, 0644);
MODULE_PARM_DESC(serial_prefix, "first part of the serial of devices bound from now on");

unsigned int edu_max_factorial = 1 << 24;
module_param_named(max_factorial, edu_max_factorial, uint, 0644);
MODULE_PARM_DESC(max_factorial, "largest n whose factorial may be asked for");

unsigned int edu_op_timeout_ms = 2000;
module_param_named(op_timeout_ms, edu_op_timeout_ms, uint, 0644);
MODULE_PARM_DESC(op_timeout_ms, "milliseconds after which an operation has timed out");

static struct class *edu_class;
static dev_t edu_devt;
static DEFINE_IDA(edu_ida);

/* Only the owner and the group: who may use it is the container runtime's to say. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
static char *edu_devnode(const struct device *dev, umode_t *mode)
#else
static char *edu_devnode(struct device *dev, umode_t *mode)
#endif
{
	if (mode)
		*mode = 0660;
	return NULL;
}

struct class *edu_class_create(const char *name)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	struct class *class = class_create(name);
#else
	struct class *class = class_create(THIS_MODULE, name);
#endif

	if (!IS_ERR(class))
		class->devnode = edu_devnode;
	return class;
}

static void edu_dev_release(struct device *dev)
{
	kfree(container_of(dev, struct edu_dev, dev));
}

static struct edu_dev *edu_alloc(struct pci_dev *pdev)
{
	struct edu_dev *edu = kzalloc(sizeof(*edu), GFP_KERNEL);

	if (!edu)
		return NULL;
	device_initialize(&edu->dev);
	edu->dev.class = edu_class;
	edu->dev.parent = &pdev->dev;
	edu->dev.release = edu_dev_release;
	edu->pdev = pdev;
	mutex_init(&edu->lock);
	mutex_init(&edu->layout);
	edu->parts = 1;
	edu->limit = EDU_LIMIT;
	spin_lock_init(&edu->state_lock);
	init_waitqueue_head(&edu->wait);
	strscpy(edu->bdf, pci_name(pdev), sizeof(edu->bdf));
	/* No serial number in the hardware: the place is the identity. */
	kernel_param_lock(THIS_MODULE);
	snprintf(edu->serial, sizeof(edu->serial), "%.*s-%04x-%02x-%02x-%x",
		 (int)min_t(size_t, strcspn(serial_prefix, "\n"), 12),
		 serial_prefix, pci_domain_nr(pdev->bus), pdev->bus->number,
		 PCI_SLOT(pdev->devfn), PCI_FUNC(pdev->devfn));
	kernel_param_unlock(THIS_MODULE);
	return edu;
}

/* Registers, DMA memory: all of it freed by the core after remove. */
static int edu_map(struct edu_dev *edu)
{
	struct pci_dev *pdev = edu->pdev;
	int ret = pcim_enable_device(pdev);

	if (ret)
		return ret;
	ret = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(28));
	if (ret)
		return ret;
	edu->bar = pcim_iomap(pdev, 0, 0);
	if (!edu->bar)
		return -ENOMEM;
	if (!edu_alive(edu))
		return dev_err_probe(&pdev->dev, -ENODEV, "does not answer\n");
	edu->dma_buf = dmam_alloc_coherent(&pdev->dev, EDU_DMA_MAX,
					   &edu->dma_addr, GFP_KERNEL);
	if (!edu->dma_buf)
		return -ENOMEM;
	pci_set_master(pdev);
	return 0;
}

/* Without an interrupt the driver polls, so that is no error. */
static void edu_setup_irq(struct edu_dev *edu)
{
	struct pci_dev *pdev = edu->pdev;
	int ret = -ENODEV;

	if (!no_msi)
		ret = pci_alloc_irq_vectors(pdev, 1, 1, PCI_IRQ_MSI);
	if (ret == 1) {
		edu->irq = pci_irq_vector(pdev, 0);
		ret = request_irq(edu->irq, edu_interrupt, 0, "edu", edu);
		if (ret == 0)
			return;
		pci_free_irq_vectors(pdev);
	}
	edu->irq = 0;
	dev_info(&pdev->dev, "no interrupt (%d), polling\n", ret);
}

static void edu_free_irq(struct edu_dev *edu)
{
	if (!edu->irq)
		return;
	free_irq(edu->irq, edu);
	pci_free_irq_vectors(edu->pdev);
}

static int edu_register(struct edu_dev *edu)
{
	int ret = ida_alloc_max(&edu_ida, EDU_MAX_DEVICES - 1, GFP_KERNEL);

	if (ret < 0)
		return ret;
	edu->index = ret;
	edu->dev.devt = MKDEV(MAJOR(edu_devt), edu->index);
	cdev_init(&edu->cdev, &edu_fops);
	edu->cdev.owner = THIS_MODULE;
	ret = dev_set_name(&edu->dev, "edu%d", edu->index);
	if (!ret)
		ret = cdev_device_add(&edu->cdev, &edu->dev);
	if (ret)
		ida_free(&edu_ida, edu->index);
	return ret;
}

static int edu_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct edu_dev *edu;
	int ret;

	if (READ_ONCE(fail_probe))
		return -EIO;
	edu = edu_alloc(pdev);
	if (!edu)
		return -ENOMEM;
	ret = edu_map(edu);
	if (ret)
		goto put;
	edu_setup_irq(edu);
	pci_set_drvdata(pdev, edu);
	ret = edu_register(edu);
	if (ret)
		goto irq;
	dev_info(&pdev->dev, "%s ready, serial %s\n", dev_name(&edu->dev), edu->serial);
	return 0;
irq:
	edu_free_irq(edu);
	pci_clear_master(pdev);
put:
	put_device(&edu->dev);
	return ret;
}

static void edu_remove(struct pci_dev *pdev)
{
	struct edu_dev *edu = pci_get_drvdata(pdev);

	/* First nobody gets in, then who waits is sent away, then nobody is in. */
	cdev_device_del(&edu->cdev, &edu->dev);
	WRITE_ONCE(edu->gone, true);
	edu_parts_end(edu);
	wake_up_all(&edu->wait);
	mutex_lock(&edu->lock);
	edu_quiesce(edu);
	mutex_unlock(&edu->lock);

	edu_free_irq(edu);
	pci_clear_master(pdev);
	ida_free(&edu_ida, edu->index);
	dev_info(&pdev->dev, "%s removed\n", dev_name(&edu->dev));
	put_device(&edu->dev);
}

/* A reset finds the device idle, and nobody gets in until it is done. */
static void edu_reset_prepare(struct pci_dev *pdev)
{
	struct edu_dev *edu = pci_get_drvdata(pdev);

	mutex_lock(&edu->lock);
	edu_quiesce(edu);
}

static void edu_reset_done(struct pci_dev *pdev)
{
	struct edu_dev *edu = pci_get_drvdata(pdev);
	bool dead;

	spin_lock(&edu->state_lock);
	dead = edu->injected == EDU_FAULT_DEAD;
	if (!dead)
		edu->injected = EDU_FAULT_NONE;
	spin_unlock(&edu->state_lock);
	dev_info(&pdev->dev, "reset\n");
	edu_set_health(edu, dead || !edu_alive(edu) ? EDU_FAULT_DEAD : EDU_FAULT_NONE);
	mutex_unlock(&edu->lock);
}

static const struct pci_error_handlers edu_reset_handlers = {
	.reset_prepare = edu_reset_prepare,
	.reset_done = edu_reset_done,
};

static const struct pci_device_id edu_ids[] = {
	{ PCI_DEVICE(0x1234, 0x11e8) },
	{ }
};
MODULE_DEVICE_TABLE(pci, edu_ids);

static struct pci_driver edu_driver = {
	.name = "edu",
	.id_table = edu_ids,
	.probe = edu_probe,
	.remove = edu_remove,
	.err_handler = &edu_reset_handlers,
	.dev_groups = edu_groups,
};

/* What a bad module does before it does anything else. */
static int __init edu_misbehave(void)
{
	if (slow_init_ms)
		msleep(slow_init_ms);
	if (oops_init && oops_confirm != EDU_OOPS_CONFIRM) {
		pr_err("edu: oops_init needs oops_confirm=0x%x\n", EDU_OOPS_CONFIRM);
		return -EINVAL;
	}
	if (oops_init)
		WRITE_ONCE(*(int *)EDU_OOPS_CONFIRM, 0);
	return fail_init > 0 ? -fail_init : 0;
}

static int __init edu_init(void)
{
	int ret = edu_misbehave();

	if (ret)
		return ret;
	ret = alloc_chrdev_region(&edu_devt, 0, EDU_MINORS, "edu");
	if (ret)
		return ret;
	edu_class = edu_class_create("accelerator_edu");
	if (IS_ERR(edu_class)) {
		ret = PTR_ERR(edu_class);
		goto region;
	}
	ret = edu_parts_init();
	if (ret)
		goto class;
	ret = pci_register_driver(&edu_driver);
	if (ret)
		goto parts;
	return 0;
parts:
	edu_parts_exit();
class:
	class_destroy(edu_class);
region:
	unregister_chrdev_region(edu_devt, EDU_MINORS);
	return ret;
}
module_init(edu_init);

static void __exit edu_exit(void)
{
	pci_unregister_driver(&edu_driver);
	edu_parts_exit();
	class_destroy(edu_class);
	unregister_chrdev_region(edu_devt, EDU_MINORS);
	ida_destroy(&edu_ida);
}
module_exit(edu_exit);

MODULE_DESCRIPTION("QEMU edu device as a stand-in accelerator");
MODULE_AUTHOR("The acceld authors");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(EDU_VERSION);
