// SPDX-License-Identifier: GPL-2.0
/* Memory behind the BAR of a PCI device that has no driver. */
#include <linux/device.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/pci-p2pdma.h>

#include "buffer.h"

/* The device whose BAR has struct pages, which stay until the module is removed. */
static DEFINE_MUTEX(provider_lock);
static struct pci_dev *provider;
static int provider_bar;

bool test_in_bar(enum testexporter_mode mode)
{
	switch (mode) {
	case TESTEXPORTER_BAR:
	case TESTEXPORTER_HALVES:
	case TESTEXPORTER_HALVES_DMA:
	case TESTEXPORTER_P2PMEM:
	case TESTEXPORTER_HALVES_P2PMEM:
		return true;
	default:
		return false;
	}
}

bool test_p2pmem(enum testexporter_mode mode)
{
	return mode == TESTEXPORTER_P2PMEM ||
	       mode == TESTEXPORTER_HALVES_P2PMEM;
}

/* Registers the BAR as peer-to-peer memory, as some drivers do with theirs. */
static int provide(struct pci_dev *pdev, int bar)
{
	int err = 0;

	mutex_lock(&provider_lock);
	if (provider) {
		if (provider != pdev || provider_bar != bar)
			err = -EBUSY;
		goto out;
	}
	/* The pages stay, so the device stays enabled. */
	err = pci_enable_device(pdev);
	if (err)
		goto out;
	/*
	 * test_bar_exit() releases the managed resources by this group. Until
	 * then no driver can be bound, and a removal of the device would wait.
	 */
	err = -ENOMEM;
	if (!devres_open_group(&pdev->dev, &provider, GFP_KERNEL))
		goto err_disable;
	err = pci_p2pdma_add_resource(pdev, bar, 0, 0);
	devres_close_group(&pdev->dev, &provider);
	if (err)
		goto err_release;
	provider = pci_dev_get(pdev);
	provider_bar = bar;
	goto out;

err_release:
	devres_release_group(&pdev->dev, &provider);
err_disable:
	pci_disable_device(pdev);
out:
	mutex_unlock(&provider_lock);
	return err;
}

void test_bar_exit(void)
{
	if (!provider)
		return;
	devres_release_group(&provider->dev, &provider);
	pci_disable_device(provider);
	pci_dev_put(provider);
}

static size_t size_in_bar(struct test_buffer *b)
{
	return (size_t)(b->npages - b->nram) << PAGE_SHIFT;
}

static int alloc_p2pmem(struct test_buffer *b)
{
	unsigned int i;

	b->p2pmem = pci_alloc_p2pmem(b->pdev, size_in_bar(b));
	if (!b->p2pmem)
		return -ENOMEM;
	for (i = b->nram; i < b->npages; i++)
		b->pages[i] = virt_to_page(b->p2pmem +
					   (i - b->nram) * PAGE_SIZE);
	return 0;
}

int test_bar_get(struct test_buffer *b, const struct testexporter_create *c)
{
	struct device *dev;
	int err;

	if (strnlen(c->device, sizeof(c->device)) == sizeof(c->device) ||
	    c->bar >= PCI_STD_NUM_BARS)
		return -EINVAL;
	dev = bus_find_device_by_name(&pci_bus_type, NULL, c->device);
	if (!dev)
		return -ENODEV;
	b->pdev = to_pci_dev(dev);
	device_lock(dev);
	err = -EBUSY;
	if (dev->driver)
		goto err_put;
	err = -EINVAL;
	if (!(pci_resource_flags(b->pdev, c->bar) & IORESOURCE_MEM) ||
	    pci_resource_len(b->pdev, c->bar) < size_in_bar(b))
		goto err_put;
	b->bar_phys = pci_resource_start(b->pdev, c->bar);

	err = pci_enable_device(b->pdev);
	if (err)
		goto err_put;
	if (test_p2pmem(b->mode)) {
		err = provide(b->pdev, c->bar);
		if (!err)
			err = alloc_p2pmem(b);
	}
	if (!err) {
		device_unlock(dev);
		return 0;
	}

	pci_disable_device(b->pdev);
err_put:
	device_unlock(dev);
	pci_dev_put(b->pdev);
	b->pdev = NULL;
	return err;
}

void test_bar_put(struct test_buffer *b)
{
	if (!b->pdev)
		return;
	if (b->p2pmem)
		pci_free_p2pmem(b->pdev, b->p2pmem, size_in_bar(b));
	pci_disable_device(b->pdev);
	pci_dev_put(b->pdev);
}
