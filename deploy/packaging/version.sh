#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# version.sh [DIRECTORY]: the version of packages of a checkout, which dpkg and rpm put in the order of the
# commits: 1.2.0 at the tag v1.2.0, 1.2.0~rc1 at v1.2.0-rc1, 1.2.0+git5.abcdef012345 five commits after
# it, and where there is no tag yet 0~git and the time of the commit.
set -eu
cd "${1:-.}"
hash=$(git rev-parse --short=12 HEAD)
if tag=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null); then
	version=$(printf '%s' "${tag#v}" | sed 's/-/~/; s/-/./g')
	since=$(git rev-list --count "$tag..HEAD")
	[ "$since" = 0 ] || version=$version+git$since.$hash
else
	version=0~git$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y%m%d%H%M%S).$hash
fi
[ -z "$(git status --porcelain --untracked-files=no)" ] || version=$version+dirty
echo "$version"
