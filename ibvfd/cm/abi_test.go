// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package cm

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpurdma/gpurdma/internal/abicheck"
)

// layouts are the structures of cm_abi.h with the fields that must lie where
// rdma_cma.h has them.
var layouts = []abicheck.Twin{
	{Ours: "cm_event_channel", Theirs: "rdma_event_channel", Whole: true, Fields: "fd"},
	{Ours: "cm_addr", Theirs: "rdma_addr", Whole: true, Fields: "src_sin src_sin6 src_storage dst_sin dst_sin6 dst_storage addr"},
	{Ours: "cm_route", Theirs: "rdma_route", Whole: true, Fields: "addr path_rec num_paths"},
	{Ours: "cm_id", Theirs: "rdma_cm_id", Fields: "verbs channel context qp route ps port_num"},
	{Ours: "cm_conn_param", Theirs: "rdma_conn_param", Whole: true, Fields: "private_data private_data_len responder_resources initiator_depth flow_control retry_count rnr_retry_count srq qp_num"},
	{Ours: "cm_event", Theirs: "rdma_cm_event", Fields: "id listen_id event status param.conn"},
}

// A C program of assertions, compiled with librdmacm's own header. It need not
// run.
func TestLayoutAgainstRdmaCmaH(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	headers := abicheck.Headers{
		Files: []string{"rdma/rdma_cma.h"}, Flags: []string{"-Wall", "-I", dir, "-I", filepath.Join(filepath.Dir(dir), "internal/libibverbs")}, Package: "librdmacm-dev",
	}
	var a abicheck.Assertions
	a.AddTwins(layouts)
	a.Add("CM_PS_TCP == RDMA_PS_TCP")
	for v, name := range map[eventType]string{
		eventAddrResolved: "ADDR_RESOLVED", eventAddrError: "ADDR_ERROR", eventRouteResolved: "ROUTE_RESOLVED", eventRouteError: "ROUTE_ERROR",
		eventConnectRequest: "CONNECT_REQUEST", eventConnectResponse: "CONNECT_RESPONSE", eventConnectError: "CONNECT_ERROR",
		eventUnreachable: "UNREACHABLE", eventRejected: "REJECTED", eventEstablished: "ESTABLISHED", eventDisconnected: "DISCONNECTED",
		eventDeviceRemoval: "DEVICE_REMOVAL", eventMulticastJoin: "MULTICAST_JOIN", eventMulticastError: "MULTICAST_ERROR",
		eventAddrChange: "ADDR_CHANGE", eventTimewaitExit: "TIMEWAIT_EXIT",
	} {
		a.Add(fmt.Sprintf("%d == RDMA_CM_EVENT_%s", v, name))
	}
	// Each function that is called is what the header declares, but for the names
	// of the structures.
	for ours, theirs := range map[string]string{
		"create_event_channel": "(void)", "destroy_event_channel": "(struct rdma_event_channel *)",
		"create_id":  "(struct rdma_event_channel *, struct rdma_cm_id **, void *, enum rdma_port_space)",
		"destroy_id": "(struct rdma_cm_id *)", "migrate_id": "(struct rdma_cm_id *, struct rdma_event_channel *)",
		"bind_addr":    "(struct rdma_cm_id *, struct sockaddr *)",
		"resolve_addr": "(struct rdma_cm_id *, struct sockaddr *, struct sockaddr *, int)", "resolve_route": "(struct rdma_cm_id *, int)",
		"listen": "(struct rdma_cm_id *, int)", "connect": "(struct rdma_cm_id *, struct rdma_conn_param *)",
		"accept": "(struct rdma_cm_id *, struct rdma_conn_param *)", "reject": "(struct rdma_cm_id *, const void *, uint8_t)",
		"establish": "(struct rdma_cm_id *)", "disconnect": "(struct rdma_cm_id *)",
		"init_qp_attr": "(struct rdma_cm_id *, struct ibv_qp_attr *, int *)",
		"get_cm_event": "(struct rdma_event_channel *, struct rdma_cm_event **)", "ack_cm_event": "(struct rdma_cm_event *)",
	} {
		result := "int"
		switch ours {
		case "create_event_channel":
			result = "struct rdma_event_channel *"
		case "destroy_event_channel":
			result = "void"
		}
		a.Add(fmt.Sprintf("__builtin_types_compatible_p(__typeof__(&rdma_%s), %s (*)%s)", ours, result, theirs))
		a.Add(fmt.Sprintf("sizeof(((struct cm_lib *)0)->%s) == sizeof(void *)", ours))
	}
	a.Hold(t, headers, "cm_lib.h")
}
