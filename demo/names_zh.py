"""What checkpoints, statistics and the labels of figures are called in Chinese."""

# What checkpoints of the project's own tasks say of themselves, in English; other checkpoints are shown as they are.
OF_CHECKPOINTS = {
    "majority": "多数",
    "not majority": "非多数",
    "A sequence is a majority if more than half of its tokens are ones; a tie, such as 8 of 16, is not.": (
        "超过一半的词元是 1 的序列属于多数；平局（例如 16 个中有 8 个）不算。"
    ),
}

STATISTICS_ZH = {  # name for a title, what it says
    "entropy": ("熵", "词元把注意力分散得多广：0 表示全在一个键上，最大时均匀分布"),
    "entropy_normalized": ("归一化熵", "熵占其可能最大值的比例：1 表示均匀"),
    "max_weight": ("最大权重", "最受关注的键得到多少"),
    "effective_keys": ("有效键数", "这一行相当于均匀关注多少个键"),
    "distance": ("距离", "平均看多远"),
    "offset": ("偏移", "看向哪一侧：小于 0 看前面的词元，大于 0 看后面的"),
    "self_weight": ("对自身的权重", "每个词元分给自己多少"),
    "previous_weight": ("对前一词元的权重", "分给紧挨着的前一个词元多少"),
    "next_weight": ("对后一词元的权重", "分给紧挨着的后一个词元多少"),
    "first_weight": ("对首词元的权重", "分给第一个词元多少；闲置的头常看那里"),
    "last_weight": ("对末词元的权重", "分给最后一个词元多少"),
    "special_weight": ("对特殊词元的权重", "分给分词器添加的词元多少"),
    "duplicate_weight": ("对先前相同词元的权重", "分给先前出现的相同词元多少"),
    "induction_weight": ("对相同词元之后者的权重", "分给先前相同词元之后那个词元多少，如同照抄一个模式"),
    "selectivity": ("对同类词元的选择性", "能否区分自己的词元与其他：大于 0 偏爱与查询相同的键，小于 0 偏爱不同的"),
    "output_norm": ("输出长度", "这个头给词元的表示加上多少"),
    "entropy_of_mean": ("平均图的熵", "平均注意力图有多分散；远高于熵时，模式随内容移动"),
    "accuracy_drop": ("去掉后损失的准确率", "这个头什么也不输出时，失去多大比例的正确答案"),
    "answers_changed": ("去掉后改变的答案", "这个头什么也不输出时，多大比例的答案变了"),
    "divergence": ("去掉后的散度（奈特）", "这个头什么也不输出时，模型的回答偏离多远（KL 散度）"),
    "similarity_change": ("去掉后相似度的变化", "这个头什么也不输出时，两段文本的余弦相似度移动多少"),
    "embedding_change": ("去掉后嵌入的变化", "这个头什么也不输出时，文本的嵌入与原来的余弦相差多少（1 减余弦）"),
    "loss_increase": ("去掉后损失函数的增加（奈特）", "这个头什么也不输出时，损失函数升高多少"),
    "gradient_importance": ("梯度重要性", "把这个头稍微调弱时，平均每个序列的损失函数变化多快"),
    "positional_share": ("位置占比", "模式有多少仅由位置决定：1 是固定模式，接近 0 则由内容决定"),
}
TOKEN_ZH = ("对词元 {token} 的权重", "分给所有此类词元的总和")

FIGURES_ZH = {  # what figures are labelled with; the first that fits counts
    "query": "查询",
    "key": "键",
    "query on the left, key on the right": "左为查询，右为键",
    "layer {n}, head {m}": "第 {n} 层，头 {m}",
    "encoder attention, layer {n}, head {m}": "编码器注意力，第 {n} 层，头 {m}",
    "decoder attention, layer {n}, head {m}": "解码器注意力，第 {n} 层，头 {m}",
    "cross attention, layer {n}, head {m}": "交叉注意力，第 {n} 层，头 {m}",
    "encoder attention": "编码器注意力",
    "decoder attention": "解码器注意力",
    "cross attention": "交叉注意力",
    "layer {n}": "第 {n} 层",
    "head {n}": "头 {n}",
    "attention weight": "注意力权重",
    "weight × length of the value": "权重 × 值的长度",
    "weight − the head’s mean weight": "权重 − 该头的平均权重",
    "weight − weight of {name}, without {off}": "权重 − {name}（去掉 {off}）的权重",
    "weight − weight of {name}": "权重 − {name} 的权重",
    "second − first": "第二个 − 第一个",
    "{what}: second − first": "{what}：第二个 − 第一个",
    "{what}: {name}, without {off}": "{what}：{name}，去掉 {off}",
    "{what}: {name}": "{what}：{name}",
}
