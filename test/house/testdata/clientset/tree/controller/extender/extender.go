package extender

import _ "k8s.io/client-go/kubernetes"
