// SPDX-License-Identifier: Apache-2.0

package refusal

import "fmt"

// NoMethod says why the kernel's ib_uverbs answers EPROTONOSUPPORT to
// REG_DMABUF_MR, which Linux has since 5.12 (commit bfe0cc6eb249): the kernel is
// older, or its ib_uverbs is of MLNX_OFED or DOCA and lacks it
// (linux-rdma/perftest#280, openucx/ucx#9908, perplexityai/pplx-garden#3).
func (m Machine) NoMethod() (detail, remedy string) {
	older, release := m.Older(5, 12)
	is, evidence := m.foreign("ib_uverbs")
	read := release != ""
	switch {
	case older && is == yes:
		return fmt.Sprintf("Linux %s has no REG_DMABUF_MR, which came with 5.12, and its ib_uverbs, which is not the kernel's own (%s), does not add it", release, evidence),
			newerKernel + ", with its own RDMA modules or a DOCA for it"
	case older:
		return fmt.Sprintf("Linux %s has no REG_DMABUF_MR, which came with 5.12", release), newerKernel
	case read && is == yes:
		return fmt.Sprintf("Linux %s has REG_DMABUF_MR, but the loaded ib_uverbs is not the kernel's own (%s%s) and lacks it", release, evidence, m.compat()),
			newerModules
	case read && is == no:
		return fmt.Sprintf("Linux %s has REG_DMABUF_MR, and ib_uverbs is the kernel's own (%s): neither explains the answer", release, evidence),
			"see whether a sandbox or a seccomp filter answers instead of the kernel, and which file ib_uverbs comes from (modinfo ib_uverbs)"
	case read:
		return fmt.Sprintf("Linux %s has REG_DMABUF_MR, so the loaded ib_uverbs is most likely not the kernel's own, which could not be checked: %s", release, evidence),
			newerModules
	case is == yes:
		return "ib_uverbs is not the kernel's own (" + evidence + m.compat() + ") and has no REG_DMABUF_MR; the kernel's release could not be read",
			newerModules + ", on Linux 5.12 or newer"
	case is == no:
		return "ib_uverbs is the kernel's own (" + evidence + ") and has no REG_DMABUF_MR: the kernel is older than 5.12", newerKernel
	}
	return "either the kernel is older than Linux 5.12, or its ib_uverbs is not the kernel's own (but of MLNX_OFED or DOCA) and lacks REG_DMABUF_MR: neither could be read",
		"see `uname -r` and /sys/module/ib_uverbs/taint, in which an O marks a module that is not the kernel's own; before 5.12 use a newer kernel, otherwise newer RDMA modules"
}

const (
	newerKernel  = "use Linux 5.12 or newer"
	newerModules = "install newer RDMA modules (DOCA, MLNX_OFED), or go back to the kernel's own"
)

// compat names MLNX_OFED and DOCA by the module that all of theirs need.
func (m Machine) compat() string {
	if m.Sys.Exists("module/mlx_compat") {
		return "; mlx_compat is loaded: MLNX_OFED or DOCA"
	}
	return ""
}

// Older reports whether the kernel is known to be older than a series. release is ""
// if it could not be read.
func (m Machine) Older(major, minor int) (older bool, release string) {
	release, err := m.release()
	a, b, ok := series(release)
	if err != nil || !ok {
		return false, ""
	}
	return a < major || a == major && b < minor, release
}

// Foreign reports that a module is known not to be the kernel's own, with the
// evidence.
func (m Machine) Foreign(module string) (bool, string) {
	is, evidence := m.foreign(module)
	return is == yes, evidence
}
