// SPDX-License-Identifier: Apache-2.0

// Command oci-image writes a container image of directories, one for each
// platform, as an archive in the OCI image layout. It needs no daemon and no
// privileges, and writes the same bytes for the same input. It prints the archive's name
// and the image's digest.
//
//	oci-image -o FILE -ref NAME linux/amd64=DIR linux/arm64=DIR
//
// layer.go writes the files of an image, and layout.go the archive. Change main.go to give the image another
// property.
package main
