// SPDX-License-Identifier: GPL-2.0
/* The devices on whose behalf the importer attaches. */
#include <linux/dma-mapping.h>
#include <linux/pci-p2pdma.h>
#include <linux/platform_device.h>

#include "importer.h"

static struct platform_device *soft;

static struct pci_dev *pci_get(const char *name)
{
	unsigned int domain, bus, slot, func;
	char end;

	if (strnlen(name, TESTIMPORTER_NAME) == TESTIMPORTER_NAME ||
	    sscanf(name, "%x:%x:%x.%u%c", &domain, &bus, &slot, &func, &end) != 4 ||
	    bus > 0xff || slot > 0x1f || func > 7)
		return ERR_PTR(-EINVAL);
	return pci_get_domain_bus_and_slot(domain, bus, PCI_DEVFN(slot, func));
}

/* Takes a reference. -EINVAL: not a name; -ENODEV: no such device. */
static struct device *device_find(const char *name)
{
	struct pci_dev *pdev;

	if (!strncmp(name, TESTIMPORTER_SOFT, TESTIMPORTER_NAME))
		return get_device(&soft->dev);
	pdev = pci_get(name);
	if (IS_ERR(pdev))
		return ERR_CAST(pdev);
	return pdev ? &pdev->dev : ERR_PTR(-ENODEV);
}

/*
 * As device_find(). Sets the DMA mask of a PCI device that has no driver, or
 * this module's. -EBUSY: another device, and dma_bits is not 64.
 */
struct device *importer_device_get(const char *name, unsigned int dma_bits)
{
	struct device *dev = device_find(name);
	int ret = 0;

	if (IS_ERR(dev))
		return dev;
	/*
	 * No driver has set the DMA mask of a device without a driver. A device
	 * with another driver than this module's keeps its mask.
	 */
	device_lock(dev);
	if (dev_is_pci(dev) && (!dev->driver || importer_edu_drives(dev)))
		ret = dma_set_mask_and_coherent(dev, DMA_BIT_MASK(dma_bits));
	else if (dma_bits != 64)
		ret = -EBUSY;
	device_unlock(dev);
	if (ret) {
		put_device(dev);
		return ERR_PTR(ret);
	}
	return dev;
}

int importer_distance(struct testimporter_distance *args)
{
	struct pci_dev *provider;
	struct device *client;

	if (args->reserved)
		return -EINVAL;
	provider = pci_get(args->provider);
	if (IS_ERR_OR_NULL(provider))
		return provider ? PTR_ERR(provider) : -ENODEV;
	client = device_find(args->client);
	if (IS_ERR(client)) {
		pci_dev_put(provider);
		return PTR_ERR(client);
	}
	args->distance = pci_p2pdma_distance(provider, client, false);
	put_device(client);
	pci_dev_put(provider);
	return 0;
}

int importer_device_init(void)
{
	int ret;

	soft = platform_device_register_simple("testimporter", PLATFORM_DEVID_NONE, NULL, 0);
	if (IS_ERR(soft))
		return PTR_ERR(soft);
	ret = dma_coerce_mask_and_coherent(&soft->dev, DMA_BIT_MASK(64));
	if (ret)
		platform_device_unregister(soft);
	return ret;
}

void importer_device_exit(void)
{
	platform_device_unregister(soft);
}
