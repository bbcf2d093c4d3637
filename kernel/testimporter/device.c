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

/* With a reference. -EINVAL: no such name; -ENODEV: no such device. */
struct device *importer_device_get(const char *name)
{
	struct pci_dev *pdev;
	int ret = 0;

	if (!strncmp(name, TESTIMPORTER_SOFT, TESTIMPORTER_NAME))
		return get_device(&soft->dev);
	pdev = pci_get(name);
	if (IS_ERR(pdev))
		return ERR_CAST(pdev);
	if (!pdev)
		return ERR_PTR(-ENODEV);
	/*
	 * A device without a driver has had nobody to say how many address bits
	 * it has; one with a driver is left as it is.
	 */
	device_lock(&pdev->dev);
	if (!pdev->dev.driver)
		ret = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	device_unlock(&pdev->dev);
	if (ret) {
		pci_dev_put(pdev);
		return ERR_PTR(ret);
	}
	return &pdev->dev;
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
	client = importer_device_get(args->client);
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
