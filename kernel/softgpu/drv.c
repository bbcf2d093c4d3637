// SPDX-License-Identifier: GPL-2.0
/*
 * The PCI driver: binds the emulated devices whose BAR serves as VRAM, and
 * gives each a DRM device.
 *
 * A device may be unbound or unplugged while buffers, mappings and memory
 * regions of it exist. Each buffer keeps the DRM device and the kernel mapping
 * of the BAR, and a pinned or mapped one also keeps its extent of VRAM. The
 * module cannot be removed while one of its files is open. The probe of a
 * device fails while buffers of an earlier binding are in its VRAM: they may be
 * mapped for DMA, and no other buffer may get that memory.
 */
#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/pm_runtime.h>
#include <linux/slab.h>

#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_gem.h>
#include <drm/drm_ioctl.h>

#include "softgpu.h"

#define MAX_DEVICES 16

static char *personality[MAX_DEVICES];
static int npersonality;
module_param_array(personality, charp, &npersonality, 0444);
MODULE_PARM_DESC(personality, "driver whose ioctls each device answers, in the order of probing: i915, xe or amdgpu (default amdgpu); further devices get the last entry");

static char *behaviour[MAX_DEVICES];
static int nbehaviour;
module_param_array(behaviour, charp, &nbehaviour, 0444);
MODULE_PARM_DESC(behaviour, "how each device's exporter behaves: amdgpu, xe, i915, nvidia, nvidia-coherent or vfio (default: as the personality)");

static uint vram_mb[MAX_DEVICES];
static int nvram_mb;
module_param_array(vram_mb, uint, &nvram_mb, 0444);
MODULE_PARM_DESC(vram_mb, "VRAM of each device in MiB, if more than its BAR (default: the BAR)");

static char *pin_rule = "kernel";
module_param(pin_rule, charp, 0444);
MODULE_PARM_DESC(pin_rule, "where amdgpu and xe pin: system, vram (if all importers are peer to peer), or kernel (as this kernel's own drivers)");

static bool big_pages = true;
module_param(big_pages, bool, 0444);
MODULE_PARM_DESC(big_pages, "xe: VRAM pages of 64 KiB as on DG2 and PVC, else 4 KiB (default Y)");

bool softgpu_wipe = true;
module_param_named(wipe, softgpu_wipe, bool, 0644);
MODULE_PARM_DESC(wipe, "zero VRAM before a buffer uses it and when it is freed (default Y); off for huge sparse BARs");

bool softgpu_topology_gate = true;
module_param_named(topology_gate, softgpu_topology_gate, bool, 0644);
MODULE_PARM_DESC(topology_gate, "nvidia: refuse importers that share no bridge with the GPU, as drivers from 580 on (default Y); N: as drivers up to 575, whose map op refuses those that need pages");

struct workqueue_struct *softgpu_wq;

/* Every device from probe until its last buffer is gone. */
static LIST_HEAD(devices);
static DEFINE_MUTEX(devices_lock);
static unsigned int probed;

static const struct softgpu_personality personalities[] = {
	{ "amdgpu", "amdgpu", &softgpu_amdgpu_driver },
	{ "xe", "xe", &softgpu_xe_driver },
	{ "i915", "i915", &softgpu_i915_driver },
};

void softgpu_get_module(void)
{
	__module_get(THIS_MODULE);
}

void softgpu_put_module(void)
{
	module_put(THIS_MODULE);
}

const struct file_operations softgpu_fops = {
	.owner = THIS_MODULE,
	.open = drm_open,
	.release = drm_release,
	.unlocked_ioctl = drm_ioctl,
	.compat_ioctl = drm_compat_ioctl,
	.poll = drm_poll,
	.read = drm_read,
	.llseek = noop_llseek,
	.mmap = drm_gem_mmap,
	.show_fdinfo = drm_show_fdinfo,
	.fop_flags = FOP_UNSIGNED_OFFSET,
};

/* Runs when no file, buffer or dma-buf refers to the DRM device any more. */
void softgpu_release(struct drm_device *drm)
{
	struct softgpu_device *gpu = to_softgpu(drm);

	mutex_lock(&devices_lock);
	list_del(&gpu->link);
	mutex_unlock(&devices_lock);
	softgpu_vram_fini(gpu);
	if (gpu->bar)
		iounmap(gpu->bar);
	mutex_destroy(&gpu->vram_lock);
	mutex_destroy(&gpu->bos_lock);
	pci_dev_put(gpu->pdev);
}

/* A parameter list's entry for device i; the last entry repeats. */
static const char *nth(char **list, int n, unsigned int i)
{
	return n ? list[min_t(unsigned int, i, n - 1)] : NULL;
}

static const struct softgpu_personality *choose_personality(unsigned int i)
{
	const char *name = nth(personality, npersonality, i);
	unsigned int k;

	if (!name)
		return &personalities[0];
	for (k = 0; k < ARRAY_SIZE(personalities); k++)
		if (sysfs_streq(name, personalities[k].name))
			return &personalities[k];
	return NULL;
}

static int choose_pin_rule(enum softgpu_pin_rule *rule)
{
	int ret = 0;

	if (sysfs_streq(pin_rule, "kernel"))
		*rule = SOFTGPU_KERNEL_PIN_RULE;
	else if (sysfs_streq(pin_rule, "system"))
		*rule = SOFTGPU_PIN_SYSTEM;
	else if (sysfs_streq(pin_rule, "vram"))
		*rule = SOFTGPU_PIN_VRAM;
	else
		ret = -EINVAL;
	return ret;
}

/* -EBUSY while an earlier binding of this device still has VRAM in use. */
static int claim_device(struct softgpu_device *gpu)
{
	struct softgpu_device *other;
	int ret = 0;

	mutex_lock(&devices_lock);
	list_for_each_entry(other, &devices, link)
		if (other->bar_phys == gpu->bar_phys && READ_ONCE(other->vram_nodes))
			ret = -EBUSY;
	list_add_tail(&gpu->link, &devices);
	mutex_unlock(&devices_lock);
	return ret;
}

static void unplug_work(struct work_struct *work)
{
	struct softgpu_device *gpu = container_of(work, struct softgpu_device, unplug_work);

	pci_stop_and_remove_bus_device_locked(gpu->pdev);
	drm_dev_put(&gpu->drm);
}

/* Sets the device up before user space sees it. */
static int setup(struct softgpu_device *gpu, struct pci_dev *pdev, int bar_nr, unsigned int i)
{
	const char *name = nth(behaviour, nbehaviour, i);
	u64 vram = nvram_mb ? (u64)vram_mb[min_t(unsigned int, i, nvram_mb - 1)] << 20 : 0;
	int ret;

	gpu->bar_nr = bar_nr;
	gpu->bar_phys = pci_resource_start(pdev, bar_nr);
	gpu->visible_size = round_down(pci_resource_len(pdev, bar_nr), PAGE_SIZE);
	gpu->vram_size = max(gpu->visible_size, vram);
	gpu->vram_page = big_pages ? SZ_64K : PAGE_SIZE;
	gpu->behaviour = softgpu_behaviour_find(name ? name : gpu->personality->behaviour);
	if (!gpu->behaviour) {
		dev_err(&pdev->dev, "no behaviour %s\n", name);
		return -EINVAL;
	}
	ret = choose_pin_rule(&gpu->pin_rule);
	if (ret) {
		dev_err(&pdev->dev, "no pin rule %s\n", pin_rule);
		return ret;
	}
	ret = claim_device(gpu);
	if (ret) {
		dev_err(&pdev->dev, "buffers of an earlier binding are still in use\n");
		return ret;
	}
	ret = pcim_enable_device(pdev);
	if (ret)
		return ret;
	/*
	 * This driver does not request the BAR. If it did, a kernel with
	 * CONFIG_IO_STRICT_DEVMEM would keep a test from reading a buffer's
	 * bytes in the BAR through sysfs.
	 */
	pci_set_master(pdev);
	ret = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (ret)
		return ret;
	devm_arch_io_reserve_memtype_wc(&pdev->dev, gpu->bar_phys, gpu->visible_size);
	gpu->bar = ioremap_wc(gpu->bar_phys, gpu->visible_size);
	if (!gpu->bar)
		return -ENOMEM;
	return softgpu_vram_init(gpu);
}

static int softgpu_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	const struct softgpu_personality *who;
	struct softgpu_device *gpu;
	unsigned int i;
	int ret;

	mutex_lock(&devices_lock);
	i = probed++;
	mutex_unlock(&devices_lock);
	who = choose_personality(i);
	if (!who) {
		dev_err(&pdev->dev, "no personality %s\n", nth(personality, npersonality, i));
		return -EINVAL;
	}
	gpu = devm_drm_dev_alloc(&pdev->dev, who->driver, struct softgpu_device, drm);
	if (IS_ERR(gpu))
		return PTR_ERR(gpu);
	/* From here on, softgpu_release() undoes this function on an error. */
	gpu->pdev = pci_dev_get(pdev);
	gpu->personality = who;
	mutex_init(&gpu->vram_lock);
	mutex_init(&gpu->bos_lock);
	spin_lock_init(&gpu->dirty_lock);
	INIT_LIST_HEAD(&gpu->lru);
	INIT_LIST_HEAD(&gpu->bos);
	INIT_LIST_HEAD(&gpu->link);
	INIT_WORK(&gpu->unplug_work, unplug_work);

	ret = setup(gpu, pdev, id->driver_data, i);
	if (ret)
		return ret;
	pci_set_drvdata(pdev, gpu);
	ret = drm_dev_register(&gpu->drm, 0);
	if (ret)
		return ret;
	softgpu_debugfs_add(gpu);
	dev_info(&pdev->dev, "%s, exports like %s: VRAM %llu MiB, of it in BAR%d %llu MiB\n",
		 who->name, gpu->behaviour->name, gpu->vram_size >> 20,
		 gpu->bar_nr, gpu->visible_size >> 20);
	/* The device is idle now: with power/control at "auto" it suspends. */
	pm_runtime_put_noidle(&pdev->dev);
	return 0;
}

static void softgpu_remove(struct pci_dev *pdev)
{
	struct softgpu_device *gpu = pci_get_drvdata(pdev);

	pm_runtime_get_noresume(&pdev->dev);
	softgpu_debugfs_remove(gpu);
	drm_dev_unplug(&gpu->drm);
	softgpu_revoke_all(gpu);
}

static const struct pci_device_id softgpu_ids[] = {
	/* QEMU ivshmem-plain: shared memory in BAR2 */
	{ PCI_DEVICE(0x1af4, 0x1110), .driver_data = 2 },
	/* QEMU bochs-display: frame buffer in BAR0 */
	{ PCI_DEVICE(0x1234, 0x1111), .driver_data = 0 },
	{}
};
MODULE_DEVICE_TABLE(pci, softgpu_ids);

static struct pci_driver softgpu_pci_driver = {
	.name = "softgpu",
	.id_table = softgpu_ids,
	.probe = softgpu_probe,
	.remove = softgpu_remove,
	.dev_groups = softgpu_groups,
};

static int __init softgpu_init(void)
{
	int ret;

	softgpu_wq = alloc_workqueue("softgpu", WQ_UNBOUND, 0);
	if (!softgpu_wq)
		return -ENOMEM;
	softgpu_debugfs_module_init();
	ret = pci_register_driver(&softgpu_pci_driver);
	if (ret) {
		softgpu_debugfs_module_fini();
		destroy_workqueue(softgpu_wq);
	}
	return ret;
}

static void __exit softgpu_exit(void)
{
	pci_unregister_driver(&softgpu_pci_driver);
	/* Waits for work items, which may still run code of this module. */
	destroy_workqueue(softgpu_wq);
	softgpu_debugfs_module_fini();
}

module_init(softgpu_init);
module_exit(softgpu_exit);

MODULE_DESCRIPTION("software GPU for tests of peer-to-peer DMA");
MODULE_LICENSE("GPL");
