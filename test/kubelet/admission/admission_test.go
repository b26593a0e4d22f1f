//go:build !kubelet136

// Package admission judges the admission policies of the manifests with the library of which the API server is made: it
// needs no API server, and sees each policy alone.
package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"

	corpus "github.com/acceld/acceld/test/admission"
)

// compiled is a policy and what decides by it.
type compiled struct {
	*admissionv1.ValidatingAdmissionPolicy
	validator validating.Validator
}

// compile does what the plugin of the API server does (k8s.io/apiserver v0.37, plugin/policy/validating/plugin.go).
func compile(t *testing.T, p *admissionv1.ValidatingAdmissionPolicy) compiled {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	has := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	for _, v := range p.Spec.Variables {
		r := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, has,
			environment.NewExpressions)
		if r.Error != nil {
			t.Errorf("%s: the variable %q: %v", p.Name, v.Name, r.Error)
		}
	}
	var conditions, validations, messages []cel.ExpressionAccessor
	for i := range p.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
	}
	for _, v := range p.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message})
		messages = append(messages, nil)
		if v.MessageExpression != "" {
			messages[len(messages)-1] = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
	}
	for _, e := range slices.Concat(conditions, validations, messages) {
		if e == nil {
			continue
		}
		if r := compiler.CompileCELExpression(e, has, environment.NewExpressions); r.Error != nil {
			t.Errorf("%s: %q: %v", p.Name, e.GetExpression(), r.Error)
		}
	}
	matcher := matchconditions.NewMatcher(compiler.CompileCondition(conditions, has, environment.NewExpressions),
		p.Spec.FailurePolicy, "policy", "validate", p.Name)
	return compiled{p, validating.NewValidator(
		compiler.CompileCondition(validations, has, environment.NewExpressions), matcher,
		compiler.CompileCondition(nil, has, environment.NewExpressions),
		compiler.CompileCondition(messages, cel.OptionalVariableDeclarations{}, environment.NewExpressions),
		p.Spec.FailurePolicy, nil)}
}

// matches reports whether a rule of the policy names the request.
func (p compiled) matches(c corpus.Case) bool {
	resource := c.Resource.Resource
	if c.Subresource != "" {
		resource += "/" + c.Subresource
	}
	return slices.ContainsFunc(p.Spec.MatchConstraints.ResourceRules, func(r admissionv1.NamedRuleWithOperations) bool {
		return slices.Contains(r.APIGroups, c.Resource.Group) && slices.Contains(r.Resources, resource) &&
			slices.Contains(r.Operations, admissionv1.OperationType(c.Operation))
	})
}

// grants lets everybody use the names that the corpus has as granted.
func grants(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	name := map[string]string{
		"extendedresources": corpus.Granted, "validationimages": corpus.Image, "validationresources": corpus.Resource,
	}[a.GetResource()]
	if a.GetAPIGroup() == "acceld.dev" && a.GetVerb() == "use" && name != "" && a.GetName() == name {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// object returns an object of a request as an API server has it: since Kubernetes 1.37 in the type of its kind, and
// before without. One that no type fits stays as it is: a custom resource, or a field of another version. Nil stays
// nil.
func object(t *testing.T, o *unstructured.Unstructured, gated, typed bool) runtime.Object {
	t.Helper()
	if o == nil {
		return nil
	}
	into, err := scheme.Scheme.New(o.GroupVersionKind())
	if err != nil {
		return o
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, into, true)
	if err != nil && gated {
		return o
	}
	if err != nil {
		t.Fatalf("the object of the case: %v", err)
	}
	if typed {
		return into
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(into)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: fields}
}

// refusals returns why the policy refuses the request, whether its objects have types or not.
func (p compiled) refusals(t *testing.T, c corpus.Case) []string {
	t.Helper()
	out := p.refusalsOf(t, c, false)
	if typed := p.refusalsOf(t, c, true); !slices.Equal(out, typed) {
		t.Errorf("%s refuses with types %q, and without %q", p.Name, typed, out)
	}
	return out
}

func (p compiled) refusalsOf(t *testing.T, c corpus.Case, typed bool) (out []string) {
	t.Helper()
	who := &user.DefaultInfo{Name: c.User}
	if c.Node != "" {
		who.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {c.Node}}
	}
	named := c.Object
	if named == nil {
		named = c.Before
	}
	kind := named.GroupVersionKind()
	attributes := admission.NewAttributesRecord(object(t, c.Object, c.Gated, typed),
		object(t, c.Before, c.Gated, typed), kind,
		named.GetNamespace(), named.GetName(), c.Resource,
		c.Subresource, admission.Operation(c.Operation), nil, false, who)
	versioned, err := admission.NewVersionedAttributes(attributes, kind,
		admission.NewObjectInterfacesFromScheme(runtime.NewScheme()))
	if err != nil {
		t.Fatal(err)
	}
	result := p.validator.Validate(t.Context(), c.Resource, versioned, nil, nil, celconfig.RuntimeCELCostBudget,
		authorizer.AuthorizerFunc(grants))
	for _, d := range result.Decisions {
		if d.Action == validating.ActionDeny {
			out = append(out, fmt.Sprintf("%s: %s", p.Name, d.Message))
		}
		if d.Evaluation == validating.EvalError {
			t.Errorf("%s cannot decide: %s", p.Name, d.Message)
		}
	}
	return out
}

// TestCorpus asks the policies for each request of the corpus.
func TestCorpus(t *testing.T) {
	sources, err := corpus.Policies("../../..")
	if err != nil {
		t.Fatal(err)
	}
	var all []compiled
	for _, p := range sources {
		if p.Spec.FailurePolicy == nil || *p.Spec.FailurePolicy != admissionv1.Fail {
			t.Errorf("%s lets pass what it cannot decide", p.Name)
		}
		all = append(all, compile(t, p))
	}
	cases, err := corpus.Cases()
	if err != nil {
		t.Fatal(err)
	}
	asked, refused := map[string]bool{}, 0
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			var why []string
			for _, p := range all {
				if !p.matches(c) {
					continue
				}
				said := p.refusals(t, c)
				asked[p.Name] = asked[p.Name] || len(said) > 0
				why = append(why, said...)
			}
			if c.Says == "" && len(why) > 0 {
				t.Errorf("refused: %q", why)
			}
			if c.Says != "" && (len(why) == 0 || !strings.Contains(why[0], c.Says)) {
				t.Errorf("refused: %q, want %q first", why, c.Says)
			}
		})
		if c.Says != "" {
			refused++
		}
	}
	for _, p := range all {
		if !asked[p.Name] {
			t.Errorf("no case is refused by %s", p.Name)
		}
	}
	if refused < 60 {
		t.Errorf("only %d cases must be refused", refused)
	}
	t.Logf("%d policies, %d cases, %d of them must be refused", len(all), len(cases), refused)
}

// TestEveryRuleRefuses holds each rule of each policy to the corpus: one that refuses nothing in it may not work.
func TestEveryRuleRefuses(t *testing.T) {
	sources, err := corpus.Policies("../../..")
	if err != nil {
		t.Fatal(err)
	}
	cases, err := corpus.Cases()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range sources {
		for i, v := range p.Spec.Validations {
			alone := p.DeepCopy()
			alone.Spec.Validations = []admissionv1.Validation{v}
			one := compile(t, alone)
			if !slices.ContainsFunc(cases, func(c corpus.Case) bool {
				return c.Says != "" && one.matches(c) && len(one.refusals(t, c)) > 0
			}) {
				t.Errorf("%s: no case is refused by rule %d: %s", p.Name, i, v.Expression)
			}
		}
	}
}
