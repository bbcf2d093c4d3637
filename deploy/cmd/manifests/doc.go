// SPDX-License-Identifier: Apache-2.0

// Command manifests writes Kubernetes manifests of an image: with its name in a
// registry, and with the digest that it has in an archive of oci-image's. The manifests
// of the repository have a placeholder there, which no node can pull.
//
//	manifests -archive FILE -image REGISTRY/NAME -o DIRECTORY FILE.yaml...
//
// Change it to fill another field of the manifests.
package main
