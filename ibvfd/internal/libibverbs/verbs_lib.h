/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls into libibverbs through addresses that were looked up at run time.
 * Every function returns 0 or an errno.
 */
#ifndef GPURDMA_VERBS_LIB_H
#define GPURDMA_VERBS_LIB_H

#include <sys/types.h>

#include "verbs_abi.h"

/*
 * The library's functions. NULL if the library is older than rdma-core 24: qp_to_qp_ex;
 * than 28: reg_mr_iova2; 32: query_gid_table; 34: reg_dmabuf_mr; 59: reg_mr_ex; 64: the
 * last three.
 */
struct vb_lib {
	struct vb_device **(*get_device_list)(int *n);
	void (*free_device_list)(struct vb_device **);
	const char *(*get_device_name)(struct vb_device *);
	struct vb_context *(*open_device)(struct vb_device *);
	int (*close_device)(struct vb_context *);
	int (*query_device)(struct vb_context *, struct vb_device_attr *);
	int (*query_port)(struct vb_context *, uint8_t port,
			  struct vb_port_attr *);
	struct vb_pd *(*alloc_pd)(struct vb_context *);
	int (*dealloc_pd)(struct vb_pd *);
	struct vb_mr *(*reg_mr)(struct vb_pd *, void *addr, size_t length,
				int access);
	int (*rereg_mr)(struct vb_mr *, int flags, struct vb_pd *, void *addr,
			size_t length, int access);
	int (*dereg_mr)(struct vb_mr *);
	struct vb_cq *(*create_cq)(struct vb_context *, int cqe, void *ctx,
				   struct vb_comp_channel *,
				   int comp_vector);
	int (*destroy_cq)(struct vb_cq *);
	struct vb_qp *(*create_qp)(struct vb_pd *, struct vb_qp_init_attr *);
	struct vb_qp_ex *(*qp_to_qp_ex)(struct vb_qp *);
	int (*modify_qp)(struct vb_qp *, struct vb_qp_attr *, int mask);
	int (*query_qp)(struct vb_qp *, struct vb_qp_attr *, int mask,
			struct vb_qp_init_attr *);
	int (*destroy_qp)(struct vb_qp *);
	struct vb_comp_channel *(*create_comp_channel)(struct vb_context *);
	int (*destroy_comp_channel)(struct vb_comp_channel *);
	int (*get_cq_event)(struct vb_comp_channel *, struct vb_cq **,
			    void **cq_context);
	void (*ack_cq_events)(struct vb_cq *, unsigned int n);
	int (*get_async_event)(struct vb_context *, struct vb_async_event *);
	void (*ack_async_event)(struct vb_async_event *);
	struct vb_srq *(*create_srq)(struct vb_pd *, struct vb_srq_init_attr *);
	int (*modify_srq)(struct vb_srq *, struct vb_srq_attr *, int mask);
	int (*query_srq)(struct vb_srq *, struct vb_srq_attr *);
	int (*destroy_srq)(struct vb_srq *);
	struct vb_ah *(*create_ah)(struct vb_pd *, struct vb_ah_attr *);
	struct vb_ah *(*create_ah_from_wc)(struct vb_pd *, struct vb_wc *,
					   struct vb_grh *, uint8_t port);
	int (*destroy_ah)(struct vb_ah *);
	struct vb_mr *(*reg_mr_iova2)(struct vb_pd *, void *addr, size_t length,
				      uint64_t iova, unsigned int access);
	ssize_t (*query_gid_table)(struct vb_context *, struct vb_gid_entry *,
				   size_t max, uint32_t flags, size_t size);
	struct vb_mr *(*reg_dmabuf_mr)(struct vb_pd *, uint64_t offset,
				       size_t length, uint64_t iova, int fd,
				       int access);
	struct vb_mr *(*reg_mr_ex)(struct vb_pd *, struct vb_mr_init_attr *);
	void *(*alloc_buf)(struct vb_pd *, size_t size, struct vb_buf **);
	void (*free_buf)(struct vb_buf *);
	struct vb_mr *(*reg_buf_mr)(struct vb_pd *, struct vb_buf *, void *addr,
				    size_t length, int access);
};

/* The functions of libmlx5; NULL if it is older than rdma-core 54. */
struct vb_mlx5 {
	struct vb_mr *(*reg_dmabuf_mr)(struct vb_pd *, uint64_t offset,
				       size_t length, uint64_t iova, int fd,
				       int access, int mlx5_access);
	int (*data_direct_path)(struct vb_context *, char *buf, size_t size);
};

/* ENODEV: libibverbs does not list a device of that name. */
int vb_open(const struct vb_lib *, const char *name, struct vb_context **);
int vb_close(const struct vb_lib *, struct vb_context *);
/* The device's name, which belongs to libibverbs. */
const char *vb_context_name(const struct vb_lib *, const struct vb_context *);
int vb_query_device(const struct vb_lib *, struct vb_context *,
		    struct vb_device_attr *);
int vb_query_port(const struct vb_lib *, struct vb_context *, uint8_t port,
		  struct vb_port_attr *);
/*
 * All entries in use of all ports, in one call. Returns how many, or a negative
 * errno; ENOSYS: this library is too old. The caller frees *out.
 */
int vb_query_gid_table(const struct vb_lib *, struct vb_context *,
		       struct vb_gid_entry **out);
int vb_alloc_pd(const struct vb_lib *, struct vb_context *, struct vb_pd **);
int vb_dealloc_pd(const struct vb_lib *, struct vb_pd *);
/* ENOSYS: this library is too old for such a registration. */
int vb_reg_mr(const struct vb_lib *, struct vb_pd *, uint64_t addr,
	      uint64_t length, uint64_t iova, uint32_t access,
	      struct vb_mr **);

/* Registrations of dma-bufs and of the provider's memory (verbs_reg.c). */

/* Sets *ex to 1 if ibv_reg_mr_ex is there and registered the dma-buf. */
int vb_reg_dmabuf_mr(const struct vb_lib *, struct vb_pd *, uint64_t offset,
		     uint64_t length, uint64_t iova, int fd, uint32_t access,
		     struct vb_mr **, int *ex);
/* For DMA by the Data Direct function. ENOSYS: this libmlx5 is too old. */
int vb_reg_data_direct(const struct vb_mlx5 *, struct vb_pd *, uint64_t offset,
		       uint64_t length, uint64_t iova, int fd, uint32_t access,
		       struct vb_mr **);
int vb_data_direct_path(const struct vb_mlx5 *, struct vb_context *, char *buf,
			size_t size);
/* Has the provider allocate memory. ENOSYS: this library is too old. */
int vb_alloc_buf(const struct vb_lib *, struct vb_pd *, size_t size,
		 void **mem, struct vb_buf **);
void vb_free_buf(const struct vb_lib *, struct vb_buf *);
int vb_reg_buf_mr(const struct vb_lib *, struct vb_pd *, struct vb_buf *,
		  uint64_t addr, uint64_t length, uint32_t access,
		  struct vb_mr **);

/* Changes the PD, unless it is NULL, and the access if change_access. */
int vb_rereg_mr(const struct vb_lib *, struct vb_mr *, struct vb_pd *,
		int change_access, uint32_t access);
int vb_dereg_mr(const struct vb_lib *, struct vb_mr *);
/* channel may be NULL. */
int vb_create_cq(const struct vb_lib *, struct vb_context *, int cqe,
		 struct vb_comp_channel *channel, int comp_vector,
		 struct vb_cq **);
int vb_destroy_cq(const struct vb_lib *, struct vb_cq *);
int vb_create_qp(const struct vb_lib *, struct vb_pd *,
		 struct vb_qp_init_attr *, struct vb_qp **);
/*
 * The queue pair can also post ops: VB_QP_EX_WITH_ATOMIC_WRITE, _FLUSH or both.
 * EOPNOTSUPP: the library, the provider or the device does not have them.
 */
int vb_create_qp_ex(const struct vb_lib *, struct vb_pd *,
		    struct vb_qp_init_attr *, uint64_t ops, struct vb_qp **,
		    struct vb_qp_ex **);
int vb_modify_qp(const struct vb_lib *, struct vb_qp *, struct vb_qp_attr *,
		 int mask);
int vb_qp_state(const struct vb_lib *, struct vb_qp *, int *state);
int vb_destroy_qp(const struct vb_lib *, struct vb_qp *);

/* Events (verbs_event.c). Go polls the descriptors. */

/* The channel's descriptor does not block. */
int vb_create_comp_channel(const struct vb_lib *, struct vb_context *,
			   struct vb_comp_channel **);
int vb_destroy_comp_channel(const struct vb_lib *, struct vb_comp_channel *);
int vb_req_notify_cq(struct vb_cq *, int solicited_only);
/* EAGAIN: there is no event. The caller acknowledges each event. */
int vb_get_cq_event(const struct vb_lib *, struct vb_comp_channel *);
void vb_ack_cq_events(const struct vb_lib *, struct vb_cq *, unsigned int n);
/* From then on vb_get_async_event does not block. */
int vb_unblock_async(struct vb_context *);
int vb_get_async_event(const struct vb_lib *, struct vb_context *,
		       struct vb_async_event *);
void vb_ack_async_event(const struct vb_lib *, struct vb_async_event *);

/* Shared receive queues (verbs_srq.c). Granted sizes come back in attr. */
int vb_create_srq(const struct vb_lib *, struct vb_pd *,
		  struct vb_srq_init_attr *, struct vb_srq **);
int vb_modify_srq(const struct vb_lib *, struct vb_srq *, struct vb_srq_attr *,
		  int mask);
int vb_query_srq(const struct vb_lib *, struct vb_srq *, struct vb_srq_attr *);
int vb_destroy_srq(const struct vb_lib *, struct vb_srq *);

/* Address handles (verbs_ah.c). */
int vb_create_ah(const struct vb_lib *, struct vb_pd *, struct vb_ah_attr *,
		 struct vb_ah **);
int vb_create_ah_from_wc(const struct vb_lib *, struct vb_pd *, struct vb_wc *,
			 struct vb_grh *, uint8_t port, struct vb_ah **);
int vb_destroy_ah(const struct vb_lib *, struct vb_ah *);

/* Memory windows (verbs_mw.c). EOPNOTSUPP: the provider has none. */
int vb_alloc_mw(struct vb_pd *, int type, struct vb_mw **);
int vb_dealloc_mw(struct vb_mw *);
/* Posts the bind of a window of either type; mw->rkey is the new key then. */
int vb_bind_mw(struct vb_qp *, struct vb_mw *, struct vb_mw_bind *);

#endif
