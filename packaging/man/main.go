package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	controller "github.com/acceld/acceld/cmd/acceld-controller/cli"
	agent "github.com/acceld/acceld/cmd/acceld/cli"
)

func main() {
	out := flag.String("out", "bin/share", "the directory below which man and the directories of shells are")
	version := flag.String("version", "dev", "the version on the pages")
	flag.Parse()
	all, err := render(".", *version)
	if err == nil {
		err = write(*out, all)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

// render makes every file, by its name below share: manual pages and what shells read.
func render(root, version string) (map[string][]byte, error) {
	config, err := os.ReadFile(filepath.Join(root, "docs/config.yaml"))
	if err != nil {
		return nil, fmt.Errorf("cannot read the annotated configuration: %w", err)
	}
	places := ".SH FILES\n.TP\n.I /etc/acceld/config.yaml\nthe configuration, see\n.BR acceld\\-config (5)\n" +
		".TP\n.I /etc/acceld/definitions.d\nfurther definitions of kinds\n.TP\n.I /var/lib/acceld\nthe store of drivers, and what was changed on the host\n" +
		".TP\n.I /run/acceld/acceld.sock\nwhere the agent answers\n" +
		".SH ENVIRONMENT\n.TP\n.B NO_COLOR\nno colour on a terminal\n.TP\n.B NODE_NAME\nthe name of the Kubernetes node, where the configuration has none\n"
	out := map[string][]byte{}
	for _, p := range append(pages(agent.New(), version, places), pages(controller.New(new(bool)), version)...) {
		out["man/"+p.file()] = []byte(p.text)
	}
	c := configuration(string(config), version)
	out["man/"+c.file()] = []byte(c.text)
	for file, generate := range map[string]func(*cobra.Command, *bytes.Buffer) error{
		"bash-completion/completions/acceld":    func(c *cobra.Command, b *bytes.Buffer) error { return c.GenBashCompletionV2(b, true) },
		"zsh/vendor-completions/_acceld":        func(c *cobra.Command, b *bytes.Buffer) error { return c.GenZshCompletion(b) },
		"fish/vendor_completions.d/acceld.fish": func(c *cobra.Command, b *bytes.Buffer) error { return c.GenFishCompletion(b, true) },
	} {
		var b bytes.Buffer
		if err := generate(agent.New(), &b); err != nil {
			return nil, fmt.Errorf("cannot write %s: %w", file, err)
		}
		out[file] = b.Bytes()
	}
	return out, nil
}

// configuration is the page of the configuration file: the annotated file itself.
func configuration(text, version string) page {
	p := page{name: "acceld-config", section: files}
	var b strings.Builder
	head(&b, p.name, p.section, version, "the configuration of the agent")
	b.WriteString(".SH DESCRIPTION\n" + paragraphs("The whole configuration of the agent, /etc/acceld/config.yaml, with the default of every option. "+
		"An option that is not known is an error.") + verbatim(text) + ".SH SEE ALSO\n.BR acceld (8)\n")
	p.text = b.String()
	return p
}

func write(dir string, all map[string][]byte) error {
	for name, content := range all {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("cannot make a directory: %w", err)
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return fmt.Errorf("cannot write a page: %w", err)
		}
	}
	return nil
}
