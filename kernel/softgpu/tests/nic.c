// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nic.h"

#define HOST_SIZE (64 * 1024)

const char *const importer_kinds[IMPORTER_KINDS] = { "pinned", "revocable", "dynamic" };

static void nic_path(const struct nic *nic, const char *file, char *path, size_t size)
{
	snprintf(path, size, "/sys/class/infiniband/%s/%s", nic->name, file);
}

struct nic *nic_open(const char *name)
{
	struct nic *nic = calloc(1, sizeof(*nic));
	char path[128], target[256];
	const char *stage;
	ssize_t n;
	int err;

	snprintf(nic->name, sizeof(nic->name), "%s", name);
	nic_path(nic, "", path, sizeof(path));
	if (access(path, F_OK))
		not_here("the machine has no such RDMA device");
	nic_path(nic, "importer", path, sizeof(path));
	if (access(path, F_OK))
		not_here("this rdma_rxe knows no kinds of importers");
	nic_path(nic, "device", path, sizeof(path));
	n = readlink(path, target, sizeof(target) - 1);
	target[n > 0 ? n : 0] = 0;
	snprintf(nic->bdf, sizeof(nic->bdf), "%s",
		 n > 0 ? strrchr(target, '/') + 1 : TESTIMPORTER_SOFT);
	err = loopback_open(&nic->lb, name, 1, -1, HOST_SIZE, &stage);
	check(!err, "%s: %s: %s", name, stage, strerror(err));
	return nic;
}

void nic_close(struct nic *nic)
{
	loopback_close(&nic->lb);
	free(nic);
}

int nic_register(struct nic *nic, struct buffer *buf, int kind, bool p2p, struct mr *mr)
{
	char path[128];

	nic_path(nic, "importer", path, sizeof(path));
	check_errno(put(path, "%s", importer_kinds[kind]), 0);
	nic_path(nic, "peer2peer", path, sizeof(path));
	check_errno(put(path, "%d", p2p), 0);
	return nic_register_as_is(nic, buf, mr);
}

int nic_register_as_is(struct nic *nic, struct buffer *buf, struct mr *mr)
{
	struct range range = { .length = buf->size, .iova = IOVA_BASE };

	return -mr_register(nic->lb.pd, ROUTE_IOCTL, buf->fd, &range,
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC, mr);
}

void nic_deregister(struct nic *nic, struct mr *mr)
{
	check_errno(-mr_deregister(nic->lb.ctx, mr), 0);
}

static enum ibv_wc_status after(struct nic *nic, int err, enum ibv_wc_status status)
{
	check(!err, "%s: %s", nic->name, strerror(err));
	if (status != IBV_WC_SUCCESS)
		check(!loopback_reconnect(&nic->lb));
	return status;
}

enum ibv_wc_status nic_write(struct nic *nic, struct mr *mr, uint64_t offset,
			     const void *bytes, size_t size)
{
	struct place remote = { .addr = IOVA_BASE + offset, .key = mr->rkey };
	enum ibv_wc_status status = IBV_WC_GENERAL_ERR;
	int err;

	memcpy(nic->lb.host, bytes, size);
	err = loopback_rdma(&nic->lb, IBV_WR_RDMA_WRITE, loopback_host(&nic->lb, 0), remote,
			    size, &status);
	return after(nic, err, status);
}

enum ibv_wc_status nic_read(struct nic *nic, struct mr *mr, uint64_t offset, void *bytes,
			    size_t size)
{
	struct place remote = { .addr = IOVA_BASE + offset, .key = mr->rkey };
	enum ibv_wc_status status = IBV_WC_GENERAL_ERR;
	int err;

	memset(nic->lb.host, 0, size);
	err = loopback_rdma(&nic->lb, IBV_WR_RDMA_READ, loopback_host(&nic->lb, 0), remote,
			    size, &status);
	memcpy(bytes, nic->lb.host, size);
	return after(nic, err, status);
}

enum ibv_wc_status nic_fetch_add(struct nic *nic, struct mr *mr, uint64_t offset,
				 uint64_t add, uint64_t *old)
{
	struct place local = loopback_host(&nic->lb, 0);
	struct ibv_sge sge = { .addr = local.addr, .length = 8, .lkey = local.key };
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.atomic = {
			.remote_addr = IOVA_BASE + offset,
			.rkey = mr->rkey,
			.compare_add = add,
		},
	};
	enum ibv_wc_status status = IBV_WC_GENERAL_ERR;
	int err = loopback_post(&nic->lb, nic->lb.req, &wr, &status);

	memcpy(old, nic->lb.host, sizeof(*old));
	return after(nic, err, status);
}

enum ibv_wc_status nic_write_from(struct nic *nic, struct mr *mr, uint64_t offset,
				  void *bytes, size_t size)
{
	struct place local = { .addr = IOVA_BASE + offset, .key = mr->lkey };
	struct place remote = {
		.addr = (uintptr_t)nic->lb.host, .key = nic->lb.host_mr->rkey,
	};
	enum ibv_wc_status status = IBV_WC_GENERAL_ERR;
	int err;

	memset(nic->lb.host, 0, size);
	err = loopback_rdma(&nic->lb, IBV_WR_RDMA_WRITE, local, remote, size, &status);
	memcpy(bytes, nic->lb.host, size);
	return after(nic, err, status);
}
