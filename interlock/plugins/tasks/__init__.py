"""Tasks as rows: what each takes and by which rules its jobs are done, whoever submits them."""
