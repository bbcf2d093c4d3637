// SPDX-License-Identifier: GPL-2.0
/* Attachments of each kind, and their callbacks for moves. */
#include <linux/module.h>
#include <linux/slab.h>

#include "importer.h"

IMPORTER_IMPORT_DMA_BUF;

static void drop_mapping(struct importer *imp)
{
	if (!imp->sgt)
		return;
	dma_buf_unmap_attachment(imp->attach, imp->sgt, imp->dir);
	imp->sgt = NULL;
}

static void drop_pin(struct importer *imp)
{
	if (!imp->pinned)
		return;
	dma_buf_unpin(imp->attach);
	imp->pinned = false;
}

#ifndef HAVE_INVALIDATE_MAPPINGS
/* It cannot stop its accesses, but up to 6.12 the core requires a callback. */
static void pinned_invalidate(struct dma_buf_attachment *attach)
{
	struct importer *imp = attach->importer_priv;

	imp->invalidations++;
}
#endif

/* As ib_umem_dmabuf_revoke_locked(). */
static void revocable_invalidate(struct dma_buf_attachment *attach)
{
	struct importer *imp = attach->importer_priv;

	imp->invalidations++;
	if (imp->sgt || imp->pinned)
		imp->revoked = true;
	drop_mapping(imp);
	drop_pin(imp);
}

/* As mlx5_ib_dmabuf_invalidate_cb(): the next access maps again. */
static void dynamic_invalidate(struct dma_buf_attachment *attach)
{
	struct importer *imp = attach->importer_priv;

	imp->invalidations++;
	drop_mapping(imp);
}

#ifdef HAVE_INVALIDATE_MAPPINGS
#define PINNED_CALLBACK
#define CALLBACK(f) .invalidate_mappings = f,
#else
#define PINNED_CALLBACK .move_notify = pinned_invalidate,
#define CALLBACK(f) .move_notify = f,
#endif

/* By kind, and by whether the importer is peer to peer. */
static const struct dma_buf_attach_ops attach_ops[][2] = {
	[TESTIMPORTER_PINNED] = {
		{ PINNED_CALLBACK },
		{ PINNED_CALLBACK .allow_peer2peer = true },
	},
	[TESTIMPORTER_REVOCABLE] = {
		{ CALLBACK(revocable_invalidate) },
		{ CALLBACK(revocable_invalidate) .allow_peer2peer = true },
	},
	[TESTIMPORTER_DYNAMIC] = {
		{ CALLBACK(dynamic_invalidate) },
		{ CALLBACK(dynamic_invalidate) .allow_peer2peer = true },
	},
};

static int attach_to(struct importer *imp, const struct testimporter_attach *args)
{
	const struct dma_buf_attach_ops *ops = NULL;
	struct dma_buf_attachment *attach;

	if (args->kind != TESTIMPORTER_STATIC)
		ops = &attach_ops[args->kind][!!(args->flags & TESTIMPORTER_PEER2PEER)];
	attach = dma_buf_dynamic_attach(imp->dmabuf, imp->dev, ops, imp);
	if (IS_ERR(attach))
		return PTR_ERR(attach);
	dma_resv_lock(imp->dmabuf->resv, NULL);
	imp->attach = attach;
	dma_resv_unlock(imp->dmabuf->resv);
	return 0;
}

struct importer *importer_attach(const struct testimporter_attach *args)
{
	struct importer *imp;
	int ret;

	if (args->kind > TESTIMPORTER_DYNAMIC || args->reserved ||
	    (args->flags & ~TESTIMPORTER_FLAGS) ||
	    (args->kind == TESTIMPORTER_STATIC && (args->flags & TESTIMPORTER_PEER2PEER)))
		return ERR_PTR(-EINVAL);
	imp = kzalloc_obj(*imp);
	if (!imp)
		return ERR_PTR(-ENOMEM);
	imp->kind = args->kind;
	imp->dev = importer_device_get(args->device,
				       args->flags & TESTIMPORTER_32BIT ? 32 : 64);
	if (IS_ERR(imp->dev)) {
		ret = PTR_ERR(imp->dev);
		goto free;
	}
	imp->dmabuf = dma_buf_get(args->fd);
	if (IS_ERR(imp->dmabuf)) {
		ret = PTR_ERR(imp->dmabuf);
		goto put_device;
	}
	ret = attach_to(imp, args);
	if (!ret)
		return imp;
	dma_buf_put(imp->dmabuf);
put_device:
	put_device(imp->dev);
free:
	kfree(imp);
	return ERR_PTR(ret);
}

void importer_detach(struct importer *imp)
{
	dma_resv_lock(imp->dmabuf->resv, NULL);
	drop_mapping(imp);
	drop_pin(imp);
	dma_resv_unlock(imp->dmabuf->resv);
	dma_buf_detach(imp->dmabuf, imp->attach);
	dma_buf_put(imp->dmabuf);
	put_device(imp->dev);
	kfree(imp);
}

static bool pins(struct importer *imp)
{
	return imp->kind == TESTIMPORTER_PINNED || imp->kind == TESTIMPORTER_REVOCABLE;
}

/* Waits for moves to end, which the core does for static importers only. */
static int wait_for_move(struct importer *imp)
{
	long ret;

	if (imp->kind == TESTIMPORTER_STATIC)
		return 0;
	ret = dma_resv_wait_timeout(imp->dmabuf->resv, DMA_RESV_USAGE_KERNEL, true,
				    MAX_SCHEDULE_TIMEOUT);
	return ret < 0 ? ret : 0;
}

/* Called with the reservation lock. */
int importer_map(struct importer *imp, enum dma_data_direction dir)
{
	struct sg_table *sgt;
	int ret;

	if (imp->revoked)
		return -EREMOTEIO;
	if (imp->sgt)
		return imp->dir == dir ? 0 : -EBUSY;
	if (pins(imp) && !imp->pinned) {
		ret = dma_buf_pin(imp->attach);
		if (ret)
			return ret;
		imp->pinned = true;
	}
	sgt = dma_buf_map_attachment(imp->attach, dir);
	if (IS_ERR(sgt)) {
		drop_pin(imp);
		return PTR_ERR(sgt);
	}
	imp->sgt = sgt;
	imp->dir = dir;
	imp->maps++;
	ret = wait_for_move(imp);
	if (ret) {
		drop_mapping(imp);
		drop_pin(imp);
	}
	return ret;
}

/* Called before an access: a dynamic importer maps again after a move. */
int importer_refresh(struct importer *imp)
{
	if (imp->revoked)
		return -EREMOTEIO;
	if (imp->sgt)
		return 0;
	/* Never mapped, or unmapped by the caller. */
	if (imp->kind != TESTIMPORTER_DYNAMIC || !imp->maps || imp->dir == DMA_NONE)
		return -ENXIO;
	return importer_map(imp, imp->dir);
}

int importer_unmap(struct importer *imp)
{
	if (imp->revoked)
		return -EREMOTEIO;
	if (!imp->sgt && imp->kind != TESTIMPORTER_DYNAMIC)
		return -ENXIO;
	drop_mapping(imp);
	drop_pin(imp);
	imp->dir = DMA_NONE;
	return 0;
}
