// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	api "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpurdma/gpurdma/deploy/dra/kubernetes/kubelet"
)

// gpuDriver is the name of the driver of the GPUs, which is that of NVIDIA: the examples have claims of it.
const gpuDriver = "gpu.nvidia.com"

// gpuPlugin stands in for a vendor's driver. It gives GPUs to pods, and knows nothing of NICs.
type gpuPlugin struct{ t *testing.T }

func (gpuPlugin) PrepareResourceClaims(_ context.Context, claims []*api.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	out := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range claims {
		var r kubeletplugin.PrepareResult
		for _, d := range c.Status.Allocation.Devices.Results {
			if d.Driver == gpuDriver {
				r.Devices = append(r.Devices, kubeletplugin.Device{
					Requests: []string{d.Request}, PoolName: d.Pool, DeviceName: d.Device, CDIDeviceIDs: []string{"k8s.gpu.nvidia.com/claim=" + string(c.UID) + "-" + d.Device},
				})
			}
		}
		out[c.UID] = r
	}
	return out, nil
}

func (gpuPlugin) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	out := map[types.UID]error{}
	for _, c := range claims {
		out[c.UID] = nil
	}
	return out, nil
}

func (gpuPlugin) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

func (p gpuPlugin) HandleError(ctx context.Context, err error, msg string) {
	if ctx.Err() == nil {
		p.t.Errorf("the driver of the GPUs: %s: %v", msg, err)
	}
}

// startGPUs starts the driver of a machine's GPUs, which publishes them as NVIDIA's does: the standard attributes, and
// its own.
func (m *machine) startGPUs(t *testing.T) {
	t.Helper()
	data := filepath.Join(m.short, "plugins", gpuDriver)
	if err := os.MkdirAll(data, 0o750); err != nil {
		t.Fatal(err)
	}
	text := func(s string) api.DeviceAttribute { return api.DeviceAttribute{StringValue: &s} }
	version := func(s string) api.DeviceAttribute { return api.DeviceAttribute{VersionValue: &s} }
	m.gpus = map[string]string{}
	var s resourceslice.Slice
	for i, g := range m.node.GPUs {
		d := api.Device{Name: fmt.Sprint("gpu-", i), Attributes: map[api.QualifiedName]api.DeviceAttribute{
			deviceattribute.StandardDeviceAttributePCIBusID: text(g.PCI.String()),
			"type":              text("gpu"),
			"uuid":              text(fmt.Sprintf("GPU-%08d-0000-0000-0000-000000000000", i)),
			"productName":       text("GPU of a test"),
			"architecture":      text("Hopper"),
			"driverVersion":     version("580.95.5"),
			"cudaDriverVersion": version("13.0.0"),
		}, Capacity: map[api.QualifiedName]api.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}}}
		if g.Root != nil {
			d.Attributes[deviceattribute.StandardDeviceAttributePCIeRoot] = text(*g.Root)
		}
		m.gpus[d.Name] = g.ID
		s.Devices = append(s.Devices, d)
	}
	ctx, end := context.WithCancel(context.Background())
	helper, err := kubeletplugin.Start(ctx, gpuPlugin{t}, kubeletplugin.DriverName(gpuDriver), kubeletplugin.NodeName(m.name), kubeletplugin.KubeClient(admin),
		kubeletplugin.RegistrarDirectoryPath(kubelet.Registry(m.kubelet.Dir)), kubeletplugin.PluginDataDirectoryPath(data))
	if err != nil {
		end()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		end()
		helper.Stop()
	})
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{m.name: {Slices: []resourceslice.Slice{s}}}}); err != nil {
		t.Fatal(err)
	}
	wait(t, "the GPUs of "+m.name+" are published", func() (bool, string) {
		all, err := admin.ResourceV1().ResourceSlices().List(t.Context(), meta.ListOptions{FieldSelector: "spec.nodeName=" + m.name + ",spec.driver=" + gpuDriver})
		return err == nil && len(all.Items) == 1, fmt.Sprint(err)
	})
}

// addGPUClass adds the class of the vendor's devices, as its chart does, if it is not there.
func addGPUClass(t *testing.T) {
	t.Helper()
	_, err := admin.ResourceV1().DeviceClasses().Get(t.Context(), gpuDriver, meta.GetOptions{})
	if err == nil {
		return
	}
	if _, err := admin.ResourceV1().DeviceClasses().Create(t.Context(), &api.DeviceClass{
		ObjectMeta: meta.ObjectMeta{Name: gpuDriver},
		Spec:       api.DeviceClassSpec{Selectors: []api.DeviceSelector{{CEL: &api.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q && device.attributes[%q].type == 'gpu'", gpuDriver, gpuDriver)}}}},
	}, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
