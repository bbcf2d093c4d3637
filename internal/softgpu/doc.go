// SPDX-License-Identifier: Apache-2.0

// Package softgpu tells the software GPU of kernel/softgpu from real ones: the
// only place that knows how.
//
// Change it when the driver gives itself another name.
package softgpu
