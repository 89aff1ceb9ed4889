"""A scikit-learn pipeline and grid search around the HyperSimplex classifier, with calibrated probabilities.

Run with `python examples/sklearn_pipeline.py`.
"""

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hypersimplex.sklearn import HyperSimplexLGBMClassifier


def main() -> float:
    data = load_breast_cancer()
    train_x, test_x, train_y, test_y = train_test_split(
        data.data, data.target_names[data.target], stratify=data.target, random_state=0
    )
    model = HyperSimplexLGBMClassifier(
        n_estimators=60, calibration="sigmoid", calibration_folds=3, random_state=0, n_jobs=1
    )
    search = GridSearchCV(
        make_pipeline(StandardScaler(), model),
        {"hypersimplexlgbmclassifier__num_leaves": [4, 15]},
        scoring="neg_log_loss",
        cv=3,
    )
    search.fit(train_x, train_y)
    accuracy = search.best_estimator_.score(test_x, test_y)
    print(f"best: {search.best_params_}, accuracy on held-out rows {accuracy:.3f}")
    for label, row in zip(search.predict(test_x[:3]), search.predict_proba(test_x[:3]), strict=True):
        print(label, dict(zip(search.classes_, row.round(3).tolist(), strict=True)))
    return accuracy


if __name__ == "__main__":
    main()
