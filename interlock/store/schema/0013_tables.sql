-- Of a claim's nonce only a hash is kept: whoever knew the nonce could compute every lease of the claim.
ALTER TABLE worker DROP COLUMN claim_nonce;
ALTER TABLE worker ADD COLUMN claim_nonce_hash TEXT;
