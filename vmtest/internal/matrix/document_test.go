// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// docs is a document to write into, and what is expected of kernels.
type docs struct {
	t    *testing.T
	path string
	e    *Expect
}

func newDocs(t *testing.T) *docs {
	t.Helper()
	e, err := LoadExpect("../../expect.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := &docs{t: t, path: filepath.Join(t.TempDir(), "kernels.md"), e: e}
	d.put("# Kernels\n\nby hand\n\n" + beginMark + "\nold\n" + endMark + "\n\n## Found on the way\n")
	return d
}

func (d *docs) put(text string) {
	d.t.Helper()
	if err := os.WriteFile(d.path, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// write documents some results and returns the document.
func (d *docs) write(results ...Result) string {
	d.t.Helper()
	if err := Judge(d.e, results).WriteDoc(d.path); err != nil {
		d.t.Fatal(err)
	}
	return d.read()
}

func (d *docs) read() string {
	d.t.Helper()
	b, err := os.ReadFile(d.path)
	if err != nil {
		d.t.Fatal(err)
	}
	return string(b)
}

// expectLines wants each text in the document; those that begin with "!" must not be there.
func (d *docs) expectLines(out string, texts ...string) {
	d.t.Helper()
	for _, text := range texts {
		text, no := strings.CutPrefix(text, "!")
		if strings.Contains(out, text) == no {
			d.t.Errorf("%q: there is %v in\n%s", text, !no, out)
		}
	}
}

func TestTheDocumentIsWritten(t *testing.T) {
	d := newDocs(t)
	results := sample()[:4]
	results[3].Features[0].Detail = "attached to /tmp/test-1234"
	out := d.write(results...)
	d.expectLines(out,
		"# Kernels\n\nby hand\n\n"+beginMark+"\n\n|  | 6.1 | 6.1-nobtf | 6.12 | 7.3 |\n| --- | --- | --- | --- | --- |\n",
		"| release | 6.1.0-57-amd64 | 6.1.192 | 6.12.95+deb12-amd64 | 7.3.4+deb13-amd64 |\n| **trunkline** |  |  |  |  |\n",
		"| `splice` | off | off | off | off |\n", "| `loader` | 128, 12 skipped | 128, 12 skipped | 128, 12 skipped | 140 |\n",
		"| `no-ipv6` | - | - | ok | - |\n",
		"\n## What lifts a limitation\n\n| limitation | seen on | lifted by |\n",
		"| no `tcx`: programs on an interface are attached through clsact | 6.1, 6.1-nobtf | Linux 6.6 with CONFIG_NET_XGRESS |\n",
		"on sockets of others | 6.1, 6.1-nobtf | Linux 6.12", "net.core.rmem_max",
		"\n\n"+endMark+"\n\n## Found on the way\n",
		"!old", "!no `marks`", "!no `netem`", "!test-1234")
	data, err := os.ReadFile(strings.TrimSuffix(d.path, ".md") + ".json")
	if err != nil || strings.Contains(string(data), "because") || strings.Contains(string(data), "seconds") {
		t.Errorf("%v\n%s", err, data)
	}
	if again := d.write(sample()[:4]...); again != out {
		t.Errorf("the same run gives another text:\n%s", again)
	}
	if rendered := d.write(); rendered != out {
		t.Errorf("rendering anew gives another text:\n%s", rendered)
	}
}

func TestARunUpdatesItsOwnColumn(t *testing.T) {
	d := newDocs(t)
	d.write(sample()[2])
	d.write(sample()[0], sample()[3])
	out := d.write(sample()[1])
	d.expectLines(out, "|  | 6.1 | 6.1-nobtf | 6.12 | 7.3 |\n") // in the order of kernels, not of runs

	newer := sample()[2]
	newer.Release = "6.12.99+deb12-amd64"
	out = d.write(newer)
	d.expectLines(out, "| 6.1.0-57-amd64 | 6.1.192 | 6.12.99+deb12-amd64 | 7.3.4+deb13-amd64 |", "!6.12.95")

	newest := sample()[3]
	newest.Kernel, newest.Release = "7.5", "7.5.1"
	out = d.write(newest)
	d.expectLines(out, "|  | 6.1 | 6.1-nobtf | 6.12 | 7.5 |\n", "!7.3.4") // the newest replaces the one before it

	host := sample()[4]
	host.Kernel = Host
	out = d.write(host)
	d.expectLines(out, "|  | 6.1 | 6.1-nobtf | 6.12 | 7.5 | host |\n", "| no `netem`: ")
}

func TestOnlyWhatWorksAsExpectedIsDocumented(t *testing.T) {
	d := newDocs(t)
	before := d.write(sample()[:4]...)
	if out := d.write(broken(sample())[:4]...); out != before {
		t.Errorf("red columns change the document:\n%s", out)
	}
	if out := d.write(sample()[4]); out != before {
		t.Errorf("a kernel of one's own is documented:\n%s", out)
	}
}

func TestADocumentThatCannotBeWritten(t *testing.T) {
	d := newDocs(t)
	m := Judge(d.e, sample()[:1])
	for name, c := range map[string]struct{ text, json, want string }{
		"no marks":       {"# Kernels\n", "", "put them where the table belongs"},
		"no end":         {beginMark + "\n", "", "put them where the table belongs"},
		"marks reversed": {endMark + "\n" + beginMark + "\n", "", "put them where the table belongs"},
		"broken data":    {beginMark + "\n" + endMark + "\n", "{", "kernels.json: "},
	} {
		d.put(c.text)
		data := strings.TrimSuffix(d.path, ".md") + ".json"
		if c.json != "" {
			if err := os.WriteFile(data, []byte(c.json), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.WriteDoc(d.path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if d.read() != c.text {
			t.Errorf("%s: the document was changed", name)
		}
		os.Remove(data)
	}
	if err := m.WriteDoc(filepath.Join(t.TempDir(), "none.md")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// The document and its data are committed together: rendering one from the other must change nothing.
func TestTheProjectsDocumentIsUpToDate(t *testing.T) {
	text, err := os.ReadFile("../../../docs/kernels.md")
	if err != nil {
		t.Fatal(err)
	}
	columns, err := readColumns("../../../docs/kernels.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(columns) == 0 { // before the first run the table is the one written by hand
		if _, err := replaced(string(text), ""); err != nil {
			t.Error(err)
		}
		return
	}
	d := newDocs(t)
	want, err := replaced(string(text), generated(columns, d.e))
	if err != nil || want != string(text) {
		t.Errorf("docs/kernels.md is not what docs/kernels.json says (%v); `make vmtest` writes both", err)
	}
}
