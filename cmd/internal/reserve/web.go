// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// Web is a provisioning system that speaks JSON over HTTP:
//
//	GET  URL/reservations  gives {"reservations": [{"id": "...", "remote": [...], "rate": "1Gbit", ...}]}
//	POST URL/reports       takes {"host": "...", "instance": "...", "reports": [...]}
//
// An element of reservations is a Request, of reports a Report.
type Web struct {
	URL       string // without a slash at the end
	TokenFile string // its content is sent as a bearer token; "": none
	Host      string // what this host is called
	Instance  string

	client *http.Client
	limit  int64 // bytes of an answer
}

const (
	webTimeout    = 10 * time.Second
	maxWebBytes   = 8 << 20
	maxTokenBytes = 4096
	maxErrorBytes = 200
	webUserAgent  = "trunkline"
)

// NewWeb prepares an adapter; nothing is opened yet. Redirects are not followed: the token is for the system alone.
func NewWeb(url, tokenFile, host, instance string) *Web {
	return &Web{URL: strings.TrimSuffix(url, "/"), TokenFile: tokenFile, Host: host, Instance: instance, limit: maxWebBytes, client: &http.Client{
		Timeout:       webTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Pull asks for all reservations.
func (w *Web) Pull(ctx context.Context) ([]Order, error) {
	body, err := w.call(ctx, http.MethodGet, "/reservations", nil)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Reservations *[]json.RawMessage `json:"reservations"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("%s/reservations: not the JSON that is documented: %w", w.URL, err)
	}
	if answer.Reservations == nil { // an empty list ends everything, so it has to be said
		return nil, fmt.Errorf("%s/reservations: the answer has no `reservations`", w.URL)
	}
	orders := make([]Order, 0, len(*answer.Reservations))
	for _, raw := range *answer.Reservations {
		q, err := decodeOrder(raw)
		if err == nil {
			orders = append(orders, Order{Request: q})
			continue
		}
		var name struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(raw, &name) != nil || name.ID == "" {
			// Which one it is cannot be told, so it might be one that is in force: nothing may be ended for its absence.
			return nil, fmt.Errorf("%s/reservations: a reservation without an id: %w", w.URL, err)
		}
		orders = append(orders, Order{Request{ID: name.ID}, refuse(Malformed, "%v", err)})
	}
	return orders, nil
}

// Report sends all reports at once.
func (w *Web) Report(ctx context.Context, reports []Report) error {
	body, err := json.Marshal(map[string]any{"host": w.Host, "instance": w.Instance, "reports": reports})
	if err != nil {
		return fmt.Errorf("writing reports: %w", err)
	}
	_, err = w.call(ctx, http.MethodPost, "/reports", body)
	return err
}

func (w *Web) call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, w.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", w.URL, err)
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", webUserAgent)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if err := w.authorise(r); err != nil {
		return nil, err
	}
	res, err := w.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", w.URL, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, w.limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s%s: reading the answer: %w", w.URL, path, err)
	case int64(len(answer)) > w.limit:
		return nil, fmt.Errorf("%s%s: the answer has more than %d KiB", w.URL, path, w.limit>>10)
	case res.StatusCode < 200 || res.StatusCode > 299:
		return nil, fmt.Errorf("%s%s: answered %s: %q", w.URL, path, res.Status, answer[:min(len(answer), maxErrorBytes)])
	}
	return answer, nil
}

// authorise reads the token anew each time, so that it can be changed without a restart.
func (w *Web) authorise(r *http.Request) error {
	if w.TokenFile == "" {
		return nil
	}
	f, err := os.Open(w.TokenFile)
	if err != nil {
		return fmt.Errorf("reading the token: %w", err)
	}
	defer f.Close()
	token, err := io.ReadAll(io.LimitReader(f, maxTokenBytes+1))
	if err != nil {
		return fmt.Errorf("reading the token: %w", err)
	}
	text := strings.TrimSpace(string(token))
	if text == "" || len(token) > maxTokenBytes || strings.ContainsAny(text, "\r\n") {
		return errors.New("the token in " + w.TokenFile + " is not one line of up to 4096 bytes")
	}
	r.Header.Set("Authorization", "Bearer "+text)
	return nil
}
