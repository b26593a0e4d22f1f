package bed

import _ "k8s.io/client-go/kubernetes"
