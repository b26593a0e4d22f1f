// Package agent is the agent of one host: it opens the configuration, puts the organs together, lets the loop
// ([github.com/acceld/acceld/agent/loop]) turn and serves what it finds. It decides nothing about a kind of
// accelerator, which is the loop's, and knows no vendor: definitions come from a [Catalog].
package agent
