#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the packages of one architecture: deb and rpm of p2pcheck, p2pcheck-agent and dmabuf-reg.
#
#   deploy/packaging/build.sh ARCH OUT     (amd64 or arm64; mk/packages.mk calls it)
#
# The environment: VERSION of the programs, PKG_VERSION of the packages, SOURCE_DATE_EPOCH, GO,
# GO_LDFLAGS. With ARCHIVE=yes it also writes an archive of the commands, and a list of the modules in each
# (SBOM). The same source built with the same Go and C compiler gives the same bytes.
set -euo pipefail
arch=$1 out=$2
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
: "${GO:=go}" "${GO_LDFLAGS:?}" "${VERSION:?}" "${PKG_VERSION:?}" "${SOURCE_DATE_EPOCH:?}"
export SOURCE_DATE_EPOCH PKG_VERSION PKG_ARCH=$arch
host=$("$GO" env GOHOSTARCH)

fail() {
	echo "deploy/packaging/build.sh: $*" >&2
	exit 1
}

# The version goes into the packages' names and is compared by dpkg and rpm.
[[ $PKG_VERSION =~ ^[0-9][A-Za-z0-9.+~]*$ ]] ||
	fail "PKG_VERSION=$PKG_VERSION: a version begins with a digit, and has letters, digits, '.', '+' and '~' only"

# A cross compiler compiles and links the programs of another architecture: packages of both
# architectures have NVML and verbs in them, which need cgo.
declare -A triplet=([amd64]=x86_64-linux-gnu [arm64]=aarch64-linux-gnu)
[ -n "${triplet[$arch]:-}" ] || fail "$arch: there are packages for amd64 and arm64"
cc=${CC:-gcc}
if [ "$arch" != "$host" ]; then
	cc=${triplet[$arch]}-gcc
	command -v "$cc" >/dev/null || fail "$cc is missing, which links the programs for $arch: run testbed/setup.sh packages"
fi

case $out in # an absolute path: two modules' directories have the programs
/*) ;;
*) out=$PWD/$out ;;
esac
work=$out/.work-$arch
rm -rf "$work"
export PKG_PROGRAMS=$work/bin PKG_FILES=$work/files
mkdir -p "$PKG_PROGRAMS" "$PKG_FILES"

# Position independent: in such a program NVML's functions may stay unresolved until they are called.
for name in p2pcheck dmabuf-reg; do
	GOOS=linux GOARCH=$arch CGO_ENABLED=1 CC=$cc "$GO" build -trimpath -buildvcs=false -buildmode=pie \
		-ldflags "$GO_LDFLAGS" -o "$PKG_PROGRAMS/$name" "./cmd/$name"
	"$GO" run -trimpath -buildvcs=false -tags manual -ldflags "-X main.version=$VERSION" "./cmd/$name" "$PKG_FILES"
	(cd deploy && CGO_ENABLED=0 "$GO" build -trimpath -buildvcs=false -o "$work/copyright" ./cmd/copyright)
	GOOS=linux GOARCH=$arch CGO_ENABLED=1 "$work/copyright" -o "$PKG_FILES/$name.copyright" -spdx "$PKG_FILES/$name.spdx" "./cmd/$name"
done
# p2pcheck-health.sh and the TaskProlog of Slurm call slurm-p2p. p2pcheck's copyright file covers it, too, because
# p2pcheck has all of its modules: a test compares them.
(cd deploy && GOOS=linux GOARCH=$arch CGO_ENABLED=1 CC=$cc "$GO" build -trimpath -buildvcs=false -buildmode=pie \
	-ldflags "$GO_LDFLAGS" -o "$PKG_PROGRAMS/slurm-p2p" ./cmd/slurm-p2p)
# The agent's package has no program: its unit runs p2pcheck.
cat >"$PKG_FILES/p2pcheck-agent.copyright" <<-COPYRIGHT
	Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
	Upstream-Name: gpurdma
	Source: https://github.com/gpurdma/gpurdma

	Files: *
	Copyright: $(date -u -d "@$SOURCE_DATE_EPOCH" +%Y) the authors of gpurdma
	License: Apache-2.0
	 On Debian systems the text of this licence is in
	 /usr/share/common-licenses/Apache-2.0.
COPYRIGHT
echo Apache-2.0 >"$PKG_FILES/p2pcheck-agent.spdx"
gzip -9n "$PKG_FILES"/man/man1/*.1

# The same programs without a package, and the list of the modules that are linked into each.
if [ "${ARCHIVE:-no}" = yes ]; then
	name=gpurdma-$PKG_VERSION-linux-$arch
	root=$work/$name
	mkdir -p "$root/bin" "$root/share" "$root/licenses"
	cp "$PKG_PROGRAMS"/* "$root/bin/"
	cp -r "$PKG_FILES/man" "$PKG_FILES/bash-completion" "$PKG_FILES/zsh" "$PKG_FILES/fish" "$root/share/"
	cp README.md CHANGELOG.md SECURITY.md LICENSE "$root/"
	for program in p2pcheck dmabuf-reg; do
		cp "$PKG_FILES/$program.copyright" "$root/licenses/$program.copyright"
		"$GO" tool -modfile=tools/cyclonedx/go.mod cyclonedx-gomod bin -json -noserial -notimestamp -std \
			-version "$VERSION" -output "$out/$program-$PKG_VERSION-linux-$arch.cdx.json" "$PKG_PROGRAMS/$program"
	done
	chmod -R u=rwX,go=rX "$root"
	tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu \
		-C "$work" -cf - "$name" | gzip -9n >"$out/$name.tar.gz"
fi

# The newest glibc of which a program of the packages needs a symbol. The programs are linked with
# no other library: they load others when they use them.
PKG_GLIBC=$(for name in p2pcheck slurm-p2p dmabuf-reg; do
	needed=$(readelf -dW "$PKG_PROGRAMS/$name" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
	for lib in $needed; do
		case $lib in
		libc.so.6 | libpthread.so.0 | libdl.so.2 | libresolv.so.2 | ld-linux-*) ;;
		*) fail "$name is linked with $lib, which the packages do not name as a dependency" ;;
		esac
	done
	readelf -W --dyn-syms "$PKG_PROGRAMS/$name" | grep -o '@GLIBC_[0-9.]*' || fail "$name: no symbol of glibc was found"
done | sed 's/@GLIBC_//' | sort -V | tail -n 1)
export PKG_GLIBC

# The packages have the programs in other directories than an administrator who copies them by hand.
for file in deploy/slurm/p2pcheck-{health,task-prolog}.sh deploy/node-problem-detector/p2pcheck{-worse.sh,-worse.json,.json}; do
	sed 's#/usr/local/bin/p2pcheck-worse\.sh#/usr/lib/p2pcheck/p2pcheck-worse.sh#; s#/usr/local/bin/p2pcheck\b#/usr/bin/p2pcheck#; s#/usr/local/bin/slurm-p2p\b#/usr/lib/p2pcheck/slurm-p2p#' \
		"$file" >"$PKG_FILES/$(basename "$file")"
done

for name in p2pcheck p2pcheck-agent dmabuf-reg; do
	printf '%s (%s) unstable; urgency=medium\n\n  * Built from the source of version %s.\n\n -- %s  %s\n' "$name" "$PKG_VERSION" "$VERSION" \
		"The gpurdma authors <gpurdma@users.noreply.github.com>" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")" |
		gzip -9n >"$PKG_FILES/$name.changelog.gz"
	for kind in deb rpm; do
		# A deb has no field for licences: they are in the copyright file.
		license=$([ $kind = deb ] || cat "$PKG_FILES/$name.spdx")
		sed "s/@LICENSE@/$license/" "deploy/packaging/$name.yaml" >"$work/$name.yaml"
		# The deb has no revision; rpm requires one.
		PKG_RELEASE=$([ $kind = deb ] || echo 1) "$GO" tool -modfile=tools/nfpm/go.mod nfpm package \
			-f "$work/$name.yaml" -p $kind -t "$out/" >"$work/nfpm.log" 2>&1 || { cat "$work/nfpm.log" >&2; fail "nfpm made no $kind of $name"; }
	done
done
rm -rf "$work"
