// SPDX-License-Identifier: Apache-2.0

package vmtest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/trunkline/trunkline/internal/testkit"
)

// postgresBin is where Debian keeps the server's programs, which are not on the path.
func postgresBin(t *testing.T) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		t.Fatal("no PostgreSQL server: install it with `make deps`")
	}
	return filepath.Dir(found[len(found)-1])
}

// postgresUser is whom the server runs as, since it refuses root.
func postgresUser(t *testing.T) *syscall.Credential {
	t.Helper()
	u, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// startPostgres makes a cluster and runs its server at site B on both families.
func startPostgres(t *testing.T, w *world) {
	t.Helper()
	bin, who, root := postgresBin(t), postgresUser(t), publicDir(t)
	if err := os.Chown(root, int(who.Uid), int(who.Gid)); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(root, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-A", "trust", "-U", "postgres", "-N")
	initdb.Dir = root
	initdb.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	hba, err := os.OpenFile(filepath.Join(data, "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(hba, "host all all 0.0.0.0/0 trust\nhost all all ::/0 trust\n")
	hba.Close()
	var hosts []string
	for _, a := range w.lab.B.Addrs() {
		hosts = append(hosts, a.String())
	}
	server := w.lab.B.Command(context.Background(), filepath.Join(bin, "postgres"), "-D", data, "-p", "5432", "-k", root, "-F",
		"-c", "listen_addresses="+strings.Join(hosts, ","))
	server.Dir = root
	server.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	daemon(t, w.lab.B, server, w.readyB(5432)...)
}

func TestPostgreSQLBulkCopy(t *testing.T) {
	w := newWorld(t, setup{})
	startPostgres(t, w)
	rows := filepath.Join(publicDir(t), "rows")
	f, err := os.Create(rows)
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	n := testkit.Count(200_000, 20_000)
	for i := range n {
		fmt.Fprintf(io.MultiWriter(f, h), "%d\tcustomer %d of the northern region\t%x\n", i, i*7919%100_003, i*2654435761)
	}
	f.Close()
	want := sumHex(h)
	w.steered(t, func(t *testing.T, _ string, addr netip.Addr) {
		psql := func(args ...string) []byte {
			t.Helper()
			base := []string{"-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", "host=" + addr.String() + " port=5432 user=postgres dbname=postgres sslmode=disable"}
			return output(t, w.lab.A, "psql", append(base, args...)...)
		}
		psql("-c", "drop table if exists t", "-c", "create table t (id int, name text, code text)", "-c", "\\copy t from '"+rows+"'")
		// An interactive session: many small statements over one connection.
		if got := strings.TrimSpace(string(psql("-At", "-c", "select count(*) from t"))); got != strconv.Itoa(n) {
			t.Errorf("%s rows arrived, want %d", got, n)
		}
		var statements []string
		for i := range 50 {
			statements = append(statements, "-c", fmt.Sprintf("select name from t where id = %d limit 1", i))
		}
		psql(append([]string{"-At"}, statements...)...)
		sum := sha256.Sum256(psql("-c", "\\copy (select * from t order by id) to stdout"))
		if got := fmt.Sprintf("%x", sum); got != want {
			t.Errorf("the table came back with sha256 %s, want %s", got, want)
		}
	})
}
