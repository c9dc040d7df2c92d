"""What looks at the law and at the record: renderer, log checker, model check."""
