// SPDX-License-Identifier: Apache-2.0

// Package reserve keeps reservations of paths: who has been granted which rate, to which end points, for how long; and has them
// in force while they last.
//
// It is built like the network resource provisioning system of Noh and Ahn (2009), and its layers keep their names:
//
//   - The service layer takes requests, says who may make them, and answers: Book, Request, Policy. The control socket and
//     the command line stand in front of it, and systems of others behind System.
//   - The network resource allocation layer speaks with provisioning systems of others, each through an adapter: System,
//     Broker, Directory, Web. What they grant comes into the Book, and the tuning values go back to them.
//   - The control plane has what is granted take effect, and watches the path: Keeper, Prober. The paper's speaks with
//     equipment (ARGON, DRAC, UCLP); this one with the kernel of the end system.
//
// A window is rate x round-trip time, computed once and kept; it is computed again only when the path is provisioned anew or
// its round-trip time leaves its band.
package reserve
