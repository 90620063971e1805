"""Trees of XGBoost, LightGBM and scikit-learn."""
