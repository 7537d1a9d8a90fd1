// Package overlay lays what operators set for a while, overrides and lists, over the policy of the file: the policy in force is
// both. The overlay lives in the store, so that all replicas and a restarted one have it, and each entry of it expires.
package overlay

import (
	"encoding/json"
	"errors"
	"fmt"

	"sluice/controlsvc/authority"
	"sluice/shared/limit"
)

// Kind says what an item is.
type Kind string

// The kinds of items.
const (
	// Override has something else hold for one key.
	Override Kind = "override"
	// Block denies a caller's requests, Allow takes them out of a limit or out of all.
	Block Kind = "block"
	Allow Kind = "allow"
)

// Item is what one entry of the overlay says.
type Item struct {
	Kind Kind `json:"kind"`
	// Limit is the limit's name; empty for a list of the whole policy.
	Limit string `json:"limit,omitempty"`

	// Key is an override's, as Bind makes it. What the override does not say stays as it is without it.
	Key string `json:"key,omitempty"`
	// Rates are as limit.Rate.String gives them, and Burst is what a token bucket of them holds; 0: as much as its units.
	Rates     []string `json:"rates,omitempty"`
	Burst     int64    `json:"burst,omitempty"`
	Unlimited bool     `json:"unlimited,omitempty"`
	Shadow    bool     `json:"shadow,omitempty"`
	Enforce   bool     `json:"enforce,omitempty"`

	// Identity names the identity of a list, Value is its value in the form in which it stands in keys, Range a range of
	// addresses: one of the two.
	Identity string `json:"identity,omitempty"`
	Value    string `json:"value,omitempty"`
	Range    string `json:"range,omitempty"`
}

// Name gives what the store knows the item by: another one of the same name takes its place.
func (i *Item) Name() string {
	if i.Kind == Override {
		return string(i.Kind) + "/" + i.Limit + "/" + i.Key
	}
	return string(i.Kind) + "/" + i.Limit + "/" + i.Identity + "/" + i.Value + "/" + i.Range
}

func (i *Item) text() string {
	text, err := json.Marshal(i)
	if err != nil {
		panic(err) // there is nothing in an item that JSON does not know
	}
	return string(text)
}

var errNotAnItem = errors.New("it was not written by this build")

// read gives the item that an entry of the store holds.
func read(e *authority.Entry) (Item, error) {
	var i Item
	if err := json.Unmarshal([]byte(e.Text), &i); err != nil || i.Name() != e.Name {
		return Item{Kind: Kind(e.Name)}, fmt.Errorf("%w: %.64q", errNotAnItem, e.Text)
	}
	return i, nil
}

// rates reads the rates that an override gives.
func (i *Item) rates() ([]limit.Rate, error) {
	rates := make([]limit.Rate, 0, len(i.Rates))
	for _, text := range i.Rates {
		rate, err := limit.ParseRate(text)
		if err != nil {
			return nil, fmt.Errorf("rate: %w", err)
		}
		rate.Burst = i.Burst
		rates = append(rates, rate)
	}
	return rates, nil
}
