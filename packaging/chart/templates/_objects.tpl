{{/* The objects of a file of the plain manifests, or of another dir, in the release's namespace: JSON with the list "objects". */}}
{{- define "acceld.read" -}}
{{- $objects := list -}}
{{- $path := printf "%s/%s" (default "manifests" .dir) .file -}}
{{- $text := required (printf "the chart lacks %s" $path) (.root.Files.Get $path) -}}
{{- range regexSplit "(?m)^---$" (replace "acceld-system" .root.Release.Namespace $text) -1 -}}
{{- $objects = append $objects (fromYaml .) -}}
{{- end -}}
{{- dict "objects" $objects | toJson -}}
{{- end -}}

{{/* The name of an image: registry, repository, and digest or tag. */}}
{{- define "acceld.image" -}}
{{- $name := .image.repository -}}
{{- with .root.Values.registry }}{{ $name = printf "%s/%s" . $name }}{{ end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .root.Chart.AppVersion .image.tag) -}}
{{- end -}}
{{- end -}}

{{/* What values say of the pods of a DaemonSet, a Deployment or a Job, laid over the object. */}}
{{- define "acceld.pods" -}}
{{- $template := .object.spec.template -}}
{{- $pod := $template.spec -}}
{{- range concat (default list $pod.initContainers) $pod.containers -}}
{{- $_ := set . "image" (include "acceld.image" (dict "root" $.root "image" $.values.image)) -}}
{{- $_ := set . "imagePullPolicy" (default "IfNotPresent" $.values.image.pullPolicy) -}}
{{- end -}}
{{- with .root.Values.imagePullSecrets }}{{ $_ := set $pod "imagePullSecrets" . }}{{ end -}}
{{- with .values.nodeSelector }}{{ $_ := set $pod "nodeSelector" . }}{{ end -}}
{{- with .values.affinity }}{{ $_ := set $pod "affinity" . }}{{ end -}}
{{- with .values.tolerations }}{{ $_ := set $pod "tolerations" . }}{{ end -}}
{{- with .values.podAnnotations }}{{ $_ := set $template.metadata "annotations" (merge (dict) . (default dict $template.metadata.annotations)) }}{{ end -}}
{{- with .values.resources }}{{ $_ := set (first $pod.containers) "resources" . }}{{ end -}}
{{- with .values.updateStrategy }}{{ $_ := set $.object.spec "updateStrategy" . }}{{ end -}}
{{- $env := list -}}
{{- with .values.proxy -}}
{{- range $name, $value := dict "HTTP_PROXY" .http "HTTPS_PROXY" .https "NO_PROXY" .noProxy -}}
{{- if $value }}{{ $env = append $env (dict "name" $name "value" $value) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- with concat $env (default list .values.env) }}{{ $_ := set (first $pod.containers) "env" (concat (default list (first $pod.containers).env) .) }}{{ end -}}
{{- end -}}

{{/* The agent's configuration: what monitoring needs, and what is asked for over it. */}}
{{- define "acceld.config" -}}
{{- $config := dict -}}
{{- if .Values.monitoring.enabled }}{{ $config = dict "endpoint" (dict "remote" (dict "listen" "0.0.0.0:9481" "tokens" true)) }}{{ end -}}
{{- with mergeOverwrite $config (deepCopy .Values.agent.config) }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/* What the range of users of a project on OpenShift decides. */}}
{{- define "acceld.anyUser" -}}
{{- range $key := list "runAsUser" "runAsGroup" "fsGroup" -}}
{{- $_ := unset $.object.spec.template.spec.securityContext $key -}}
{{- end -}}
{{- end -}}
