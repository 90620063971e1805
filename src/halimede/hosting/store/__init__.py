"""Objects: the store that the host brings, spoken to as S3, and where model archives are fetched from."""
