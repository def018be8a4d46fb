// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestSystems(t *testing.T) {
	c, err := Parse("t.yaml", []byte(`
rules: [{remote: 203.0.113.0/24}]
reservations:
  systems:
    - {name: files, directory: /etc/trunkline/reservations.d, owner: noc}
    - {name: nrps, url: "https://nrps.example.net/api", token: /etc/trunkline/token, owner: noc, every: 1m}
    - {name: lab, url: "http://192.0.2.1", owner: noc}
  owners: [{name: noc, role: operator}]
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []System{
		{Name: "files", Directory: "/etc/trunkline/reservations.d", Owner: "noc", Every: DefaultDirectoryEvery},
		{Name: "nrps", URL: "https://nrps.example.net/api", Token: "/etc/trunkline/token", Owner: "noc", Every: time.Minute},
		{Name: "lab", URL: "http://192.0.2.1", Owner: "noc", Every: DefaultURLEvery},
	}
	if !reflect.DeepEqual(c.Reservations.Systems, want) {
		t.Errorf("%+v", c.Reservations.Systems)
	}
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings.Error(), `t.yaml:7:24: url "http://192.0.2.1" is not encrypted`) {
		t.Errorf("%v", c.Warnings)
	}
}

func TestBadSystems(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"{directory: /d, owner: noc}", `a system has no name`},
		{"{name: s, owner: noc}", `system "s" must have either a directory or a url`},
		{"{name: s, directory: /d, url: 'https://h', owner: noc}", `must have either a directory or a url`},
		{"{name: s, directory: d, owner: noc}", `directory "d" must be an absolute path`},
		{"{name: s, directory: /d, token: /t, owner: noc}", `has a token and no url`},
		{"{name: s, directory: /d}", `system "s" has no owner`},
		{"{name: s, directory: /d, owner: nocc}", `owner "nocc" of system "s" is not declared; did you mean "noc"?`},
		{"{name: s, url: 'ftp://h', owner: noc}", `url "ftp://h" must be like https://`},
		{"{name: s, url: 'https://u:secret@h', owner: noc}", `must have no user, query or fragment; a secret belongs into a file`},
		{"{name: s, directory: /d, owner: noc, every: 1ms}", `every "1ms" must be from 1s to 1h00m`},
		{"{name: s, directory: /d, owner: noc}, {name: s, directory: /e, owner: noc}", `system "s" is given twice`},
		{"{name: s, dir: /d, owner: noc}", `unknown key "dir" in a system`},
	} {
		_, err := Parse("t.yaml", []byte("rules: [{remote: 10.0.0.0/8}]\nreservations: {owners: [{name: noc}], systems: ["+c.in+"]}"))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "t.yaml:2:") || strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: %v\nwant t.yaml:2: %s", c.in, err, c.want)
		}
	}
}
