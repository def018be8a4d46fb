// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"net/http"
	"os"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/cmd/internal/reserve"
)

// callerOf is who is at the other end of the socket, as the kernel vouches for it as of connect(), with the names and groups
// that the host has for that user.
func callerOf(r *http.Request) (reserve.Caller, bool) {
	cred, ok := r.Context().Value(peerKey{}).(*unix.Ucred)
	if !ok {
		return reserve.Caller{}, false
	}
	uid := strconv.FormatUint(uint64(cred.Uid), 10)
	c := reserve.Caller{Name: "user " + uid, IDs: []string{uid}, Groups: []string{strconv.FormatUint(uint64(cred.Gid), 10)},
		Root: cred.Uid == 0 || int(cred.Uid) == os.Geteuid()}
	u, err := user.LookupId(uid)
	if err != nil {
		return c, true // a user without a name is one all the same
	}
	c.Name, c.IDs = u.Username, append(c.IDs, u.Username)
	if gids, err := u.GroupIds(); err == nil {
		c.Groups = append(c.Groups, gids...)
	}
	for _, gid := range c.Groups[:len(c.Groups):len(c.Groups)] {
		if g, err := user.LookupGroupId(gid); err == nil {
			c.Groups = append(c.Groups, g.Name)
		}
	}
	return c, true
}

// refusedAnswer makes an error of what the agent answered.
func refusedAnswer(f failure) error {
	if f.Refused != "" {
		return &reserve.Refusal{Why: reserve.Why(f.Refused), Text: f.Error}
	}
	return fmt.Errorf("%s", f.Error)
}
