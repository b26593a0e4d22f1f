package docs

import (
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// chartPage renders the values of the chart as its README, from the comments in values.yaml.
func chartPage(root string) Page {
	p := Page{Path: "packaging/chart/README.md"}
	data, err := os.ReadFile(filepath.Join(root, "packaging/chart/values.yaml"))
	var all yaml.Node
	if err == nil {
		err = yaml.Unmarshal(data, &all)
	}
	if err != nil {
		p.Text = err.Error()
		return p
	}
	var b strings.Builder
	b.WriteString("# The chart of acceld\n\nGenerated from the comments in values.yaml; do not edit. " +
		"[install.md](../../docs/install.md) tells how the\nchart is installed. " +
		"The kubelet's root directory is no value: the agent reads it from the kubelet's arguments.\n\n" +
		"| value | default | meaning |\n|---|---|---|\n")
	chartRows(&b, "", all.Content[0])
	p.Text = b.String()
	return p
}

// chartRows renders the values of a mapping. One that is written in one line is a value of its own.
func chartRows(b *strings.Builder, prefix string, m *yaml.Node) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		key, value := m.Content[i], m.Content[i+1]
		name := prefix + key.Value
		var text []string
		for line := range strings.SplitSeq(key.HeadComment, "\n") {
			text = append(text, strings.TrimSpace(strings.TrimPrefix(line, "#")))
		}
		meaning := strings.ReplaceAll(strings.TrimSpace(strings.Join(text, " ")), "|", "\\|")
		if value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle == 0 {
			b.WriteString("| `" + name + "` | | " + meaning + " |\n")
			chartRows(b, name+".", value)
			continue
		}
		value.HeadComment, value.LineComment, value.FootComment = "", "", ""
		shown, err := yaml.Marshal(value)
		if err != nil {
			shown = []byte("unknown")
		}
		b.WriteString("| `" + name + "` | `" + strings.TrimSpace(string(shown)) + "` | " + meaning + " |\n")
	}
}
