package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	agent "github.com/acceld/acceld/cmd/acceld/cli"
)

func rendered(t *testing.T) map[string][]byte {
	t.Helper()
	all, err := render("../..", "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestEveryCommand: each command that help lists has a page with every flag of it.
func TestEveryCommand(t *testing.T) {
	all := rendered(t)
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		name := "man/man8/" + nameOf(c) + ".8"
		text := strings.ReplaceAll(string(all[name]), `\-`, "-")
		if text == "" {
			t.Errorf("no page %s", name)
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(text, "--"+f.Name) {
				t.Errorf("%s does not have --%s", name, f.Name)
			}
		})
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				visit(sub)
			}
		}
	}
	visit(agent.New())
	if !strings.Contains(string(all["man/man8/acceld.8"]), ".SH EXIT STATUS\n.TP\n.B 0\ndone\n") {
		t.Error("the exit codes are not on the first page")
	}
	for _, file := range []string{
		"man/man5/acceld-config.5", "man/man8/acceld-controller.8", "man/man8/acceld-hook.8",
		"man/man8/acceld-nvml.8", "man/man8/acceld-prove.8", "bash-completion/completions/acceld",
		"zsh/vendor-completions/_acceld", "fish/vendor_completions.d/acceld.fish",
	} {
		if len(all[file]) == 0 {
			t.Errorf("no %s", file)
		}
	}
}

// TestRequests: the pages contain only the intended requests, whatever the lines of our text begin with.
func TestRequests(t *testing.T) {
	known := regexp.MustCompile(`^\.(TH|SH|TP|PP|B|BR|I|nf|fi|nh|ad)( |$)`)
	for name, content := range rendered(t) {
		if !strings.HasPrefix(name, "man/") {
			continue
		}
		for line := range strings.Lines(string(content)) {
			line = strings.TrimRight(line, "\n")
			if (strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'")) && !known.MatchString(line) {
				t.Errorf("%s: %q", name, line)
			}
		}
	}
	if got := escape(".so /etc/passwd\n'x\\y"); got != "\\&.so /etc/passwd\n\\&'x\\ey" {
		t.Errorf("escaped: %q", got)
	}
}

// TestFormatted: groff reports nothing about the pages.
func TestFormatted(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("groff is not installed")
	}
	for name, content := range rendered(t) {
		if !strings.HasPrefix(name, "man/") {
			continue
		}
		cmd := exec.CommandContext(t.Context(), groff, "-man", "-ww", "-z", "-Tutf8")
		cmd.Stdin = strings.NewReader(string(content))
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestShells: bash accepts its script.
func TestShells(t *testing.T) {
	file := filepath.Join(t.TempDir(), "acceld")
	if err := os.WriteFile(file, rendered(t)["bash-completion/completions/acceld"], 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "bash", "-n", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
