// SPDX-License-Identifier: GPL-2.0
/*
 * The device's files in its PCI directory, which tools read.
 *
 * personality	the driver whose ioctls it answers: i915, xe or amdgpu
 * behaviour	how its exporter treats importers
 * pin_rule	system or vram
 *
 * An amdgpu personality has amdgpu's mem_info files too.
 */
#include <linux/device.h>
#include <linux/sysfs.h>

#include "softgpu.h"

static ssize_t personality_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct softgpu_device *gpu = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%s\n", gpu->personality->name);
}
static DEVICE_ATTR_RO(personality);

static ssize_t behaviour_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct softgpu_device *gpu = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%s\n", READ_ONCE(gpu->behaviour)->name);
}
static DEVICE_ATTR_RO(behaviour);

static ssize_t pin_rule_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct softgpu_device *gpu = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%s\n",
			  READ_ONCE(gpu->pin_rule) == SOFTGPU_PIN_VRAM ? "vram" : "system");
}
static DEVICE_ATTR_RO(pin_rule);

static struct attribute *softgpu_attrs[] = {
	&dev_attr_personality.attr,
	&dev_attr_behaviour.attr,
	&dev_attr_pin_rule.attr,
	NULL
};

static const struct attribute_group softgpu_group = {
	.attrs = softgpu_attrs,
};

static ssize_t mem_info_vram_total_show(struct device *dev, struct device_attribute *attr,
					char *buf)
{
	struct softgpu_device *gpu = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%llu\n", gpu->vram_size);
}
static DEVICE_ATTR_RO(mem_info_vram_total);

static ssize_t mem_info_vram_used_show(struct device *dev, struct device_attribute *attr,
				       char *buf)
{
	struct softgpu_device *gpu = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%llu\n", READ_ONCE(gpu->vram_used));
}
static DEVICE_ATTR_RO(mem_info_vram_used);

static ssize_t mem_info_vis_vram_total_show(struct device *dev, struct device_attribute *attr,
					    char *buf)
{
	struct softgpu_device *gpu = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%llu\n", gpu->visible_size);
}
static DEVICE_ATTR_RO(mem_info_vis_vram_total);

static ssize_t mem_info_vis_vram_used_show(struct device *dev, struct device_attribute *attr,
					   char *buf)
{
	struct softgpu_device *gpu = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%llu\n", READ_ONCE(gpu->visible_used));
}
static DEVICE_ATTR_RO(mem_info_vis_vram_used);

static struct attribute *amdgpu_attrs[] = {
	&dev_attr_mem_info_vram_total.attr,
	&dev_attr_mem_info_vram_used.attr,
	&dev_attr_mem_info_vis_vram_total.attr,
	&dev_attr_mem_info_vis_vram_used.attr,
	NULL
};

static umode_t amdgpu_visible(struct kobject *kobj, struct attribute *attr, int n)
{
	struct softgpu_device *gpu = dev_get_drvdata(kobj_to_dev(kobj));

	return gpu->personality->driver == &softgpu_amdgpu_driver ? attr->mode : 0;
}

static const struct attribute_group amdgpu_group = {
	.attrs = amdgpu_attrs,
	.is_visible = amdgpu_visible,
};

const struct attribute_group *softgpu_groups[] = {
	&softgpu_group,
	&amdgpu_group,
	NULL
};
