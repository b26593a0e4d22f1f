package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"

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

// render returns every file by its name below share: manual pages and shell completions.
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
	for _, p := range slices.Concat(pages(agent.New(), version, places), pages(controller.New(new(bool)), version),
		started(version), []page{configuration(string(config), version)}) {
		out["man/"+p.file()] = []byte(p.text)
	}
	for shell, file := range map[string]string{
		"bash": "bash-completion/completions/acceld",
		"zsh":  "zsh/vendor-completions/_acceld",
		"fish": "fish/vendor_completions.d/acceld.fish",
	} {
		var b bytes.Buffer
		root := agent.New()
		root.SetArgs([]string{"completion", shell})
		root.SetOut(&b)
		if err := root.Execute(); err != nil {
			return nil, fmt.Errorf("cannot write %s: %w", file, err)
		}
		out[file] = b.Bytes()
	}
	return out, nil
}

// started returns the pages of the programs that other programs start.
func started(version string) []page {
	var out []page
	for _, x := range []struct{ name, short, text string }{
		{
			"acceld-hook", "keeps containers from devices that are not ready",
			"The container runtime starts it as an OCI hook at createRuntime, as the agent's configuration of the runtime says. It stops a container that " +
				"was given a device that is not ready, with one line that the pod's event shows, and lets every other container pass. It changes nothing.",
		},
		{
			"acceld-nvml", "tells the agent what NVIDIA's library knows",
			"The agent starts it when a definition names it as its probe, and reads what it writes: one JSON value a line. It loads libnvidia-ml.so.1, " +
				"which is the host's. Its flags are listed by acceld-nvml -help.",
		},
		{
			"acceld-prove", "lets a device compute",
			"The agent starts it for each device when a definition names a program as its check, and reads the one line of JSON that it writes. It loads the " +
				"library of an interface, such as libcuda.so.1 or libOpenCL.so.1, which is the host's, lets the device compute on random numbers, and compares " +
				"the result with the processor's. First it gives up all privileges. Its flags are listed by acceld-prove -help.",
		},
	} {
		out = append(out, newPage(x.name, programs, version, x.short,
			".SH DESCRIPTION\n"+paragraphs(x.text)+".SH SEE ALSO\n.BR acceld (8)\n"))
	}
	return out
}

// configuration returns the page of the configuration file: the annotated file itself.
func configuration(text, version string) page {
	return newPage("acceld-config", files, version, "the configuration of the agent", ".SH DESCRIPTION\n"+
		paragraphs("The whole configuration of the agent, /etc/acceld/config.yaml, with the default of every option. "+
			"An option that is not known is an error.")+verbatim(text)+".SH SEE ALSO\n.BR acceld (8)\n")
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
