// Package agent is the agent of one host: it opens the configuration, joins the organs, runs the loop
// ([github.com/acceld/acceld/agent/loop]) and serves what it finds. It decides nothing about a kind of accelerator:
// the loop does that. It knows no vendor: definitions come from a [Catalog].
package agent
