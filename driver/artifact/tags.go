package artifact

import (
	"context"

	"github.com/acceld/acceld/accel"
)

// Refs returns the repository that s names, without its registry, and the tags or the digest under which an artifact
// for w is looked up there. S is a source of type oci with its templates filled in.
func Refs(s accel.Source, w Wanted) (repository string, refs []string, problem *accel.Problem) {
	r, err := parseReference(s)
	if err != nil {
		return "", nil, explain(err)
	}
	return r.repository, r.refs(w), nil
}

// Tags returns the tags of the repository that s names. They come from the first registry that answers, mirrors first.
func (c *Client) Tags(ctx context.Context, s accel.Source) (tags []string, problem *accel.Problem) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	r, err := parseReference(s)
	if err != nil {
		return nil, explain(err)
	}
	problem = each(ctx, r.repositories(s.Mirrors), func(repository string, _ int) *accel.Problem {
		if tags, err = c.tagsOf(ctx, s, repository); err != nil {
			return explain(err)
		}
		return nil
	})
	return tags, problem
}

func (c *Client) tagsOf(ctx context.Context, s accel.Source, repository string) (tags []string, err error) {
	from, err := dial(ctx, c.h, s, repository, c.o.Stall, c.o.Limits)
	if err != nil {
		return nil, err
	}
	defer from.close()
	t := c.begin(accel.StagePull, repository)
	err = c.try(ctx, t, func() (err error) {
		tags, err = from.tags(ctx)
		return err
	})
	end(t, err)
	return tags, err
}
