// Package transfer fetches from servers on behalf of the packages that know what they fetch: it reaches a server
// through proxies and certificate authorities, ends what stalls, tries again what failed for a moment, resumes files,
// and reports progress. It trusts nothing that it receives: a file is there once it has the digest that its caller
// wanted.
package transfer
